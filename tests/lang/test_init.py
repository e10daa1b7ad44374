from __future__ import annotations

import subprocess
import sys

import pytest

import ramet.lang as rm
from ramet.runtime import errors


def test_the_public_names_are_these_and_exist() -> None:
    groups = {
        "programs": "function Function ProgramState ProgramStateGroup call special",
        "calls": "gen gen_int gen_string select separate_reasoning image video",
        "checks": "accepts",
        "roles": "system user assistant system_begin system_end user_begin user_end "
        "assistant_begin assistant_end",
        "choices": "token_length_normalized greedy_token_selection "
        "unconditional_likelihood_normalized exact_likelihood",
        "backends": "Runtime RuntimeEndpoint OpenAI set_default_backend flush_cache "
        "get_server_info global_config",
        "errors": "RametError ProgramError InvalidArgument UnsupportedFeature ContextOverflow "
        "PoolTooSmall GrammarError BackendError Cancelled",
    }
    assert sorted(rm.__all__) == sorted(" ".join(groups.values()).split())
    assert all(hasattr(rm, name) for name in rm.__all__)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = rm.no_such_name


def test_errors_are_the_runtimes_own() -> None:
    assert rm.RametError is errors.RametError
    assert issubclass(rm.Cancelled, rm.RametError)


def test_importing_loads_nothing_heavy() -> None:
    code = "import sys, ramet.lang; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "ramet.lang" in loaded
    assert not loaded & {"torch", "numpy", "transformers", "tokenizers", "jinja2", "tqdm"}
