from __future__ import annotations

from ramet.lang import errors as lang
from ramet.runtime import errors as runtime


def test_every_error_of_the_runtime_is_here_and_is_the_same() -> None:
    kinds = {
        name: kind
        for name, kind in vars(runtime).items()
        if isinstance(kind, type) and issubclass(kind, runtime.RametError)
    }
    assert set(lang.__all__) == set(kinds)
    assert all(getattr(lang, name) is kind for name, kind in kinds.items())
