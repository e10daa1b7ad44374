from __future__ import annotations

import pytest

from ramet.lang.backends.endpoint import RuntimeEndpoint
from ramet.lang.errors import UnsupportedFeature


def test_there_is_no_server_yet() -> None:
    with pytest.raises(UnsupportedFeature, match=r"RuntimeEndpoint\('http://host:1'\).*OpenAI"):
        RuntimeEndpoint("http://host:1", api_key="k")
