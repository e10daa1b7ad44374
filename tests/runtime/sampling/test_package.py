from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize("name", ["border", "output", "scoring", "stops", "streams"])
def test_policy_imports_no_torch(name: str) -> None:
    code = f"import sys, ramet.runtime.sampling.{name}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
