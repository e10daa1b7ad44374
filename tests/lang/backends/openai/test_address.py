from __future__ import annotations

import pytest

from ramet.lang.backends.openai.address import Endpoint, check_headers, parse_base_url
from ramet.lang.errors import InvalidArgument


@pytest.mark.parametrize(
    ("url", "parsed"),
    [
        ("http://localhost:8000/v1", (False, "localhost", 8000, "/v1")),
        ("https://api.openai.com/v1/", (True, "api.openai.com", None, "/v1")),
        ("http://[::1]:9", (False, "::1", 9, "")),
    ],
)
def test_base_urls(url: str, parsed: tuple[object, ...]) -> None:
    assert parse_base_url(url) == parsed
    endpoint = Endpoint(*parse_base_url(url), {}, (), 1.0, 0, 1.0)
    assert endpoint.base_url == url.rstrip("/")


@pytest.mark.parametrize(
    "url",
    ["", "localhost:8000", "ftp://x/v1", "http://", "http://x:y", "http://x/v1?a=b", "http://x/#f",
     "http://x/ v1", "http://x\r\nHost: y/", "http://x/v1\u00e9", None, 5],
)  # fmt: skip
def test_what_is_no_base_url(url: object) -> None:
    with pytest.raises(InvalidArgument, match="base_url"):
        parse_base_url(url)


def test_a_password_in_the_url_is_refused_and_not_shown() -> None:
    with pytest.raises(InvalidArgument, match="user or a password") as caught:
        parse_base_url("https://me:hunter2@host/v1")
    assert "hunter2" not in str(caught.value)


def test_headers_and_secrets() -> None:
    sent, hidden = check_headers("sk-key", {"X-Org": "my-organisation", "X-Short": "1"})
    assert sent["Authorization"] == "Bearer sk-key"
    assert sent["X-Org"] == "my-organisation"
    endpoint = Endpoint(False, "h", 1, "", sent, hidden, 1.0, 0, 1.0)
    assert endpoint.hide("sk-key of my-organisation, 1") == "*** of ***, 1"
    assert "sk-key" not in repr(endpoint)
    _, hidden = check_headers(None, {"Authorization": "Bearer 0123456789"})
    assert "0123456789" in hidden


@pytest.mark.parametrize("key", ["two words", "line\nbreak", "clé", "", 5])
def test_a_bad_key_is_refused_and_not_shown(key: object) -> None:
    with pytest.raises(InvalidArgument, match="api_key") as caught:
        check_headers(key, None)
    assert not key or str(key) not in str(caught.value)


@pytest.mark.parametrize(
    "headers",
    [{"A b": "c"}, {"A": "c\r\nB: d"}, {"A": 5}, {"Host": "x"}, {"content-length": "5"}],
)
def test_bad_headers(headers: dict[str, str]) -> None:
    with pytest.raises(InvalidArgument, match="headers"):
        check_headers(None, headers)


def test_two_authorizations() -> None:
    with pytest.raises(InvalidArgument, match="Authorization already"):
        check_headers("key", {"authorization": "Basic x"})
