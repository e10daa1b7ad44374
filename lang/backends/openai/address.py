"""Where an OpenAI-compatible endpoint is, how it is reached, and what of that is secret."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from urllib.parse import urlsplit

from ramet.runtime.errors import InvalidArgument


@dataclasses.dataclass(frozen=True)
class Endpoint:
    """Where requests go, and how."""

    https: bool
    host: str
    port: int | None
    path: str
    headers: Mapping[str, str] = dataclasses.field(repr=False)
    secrets: tuple[str, ...] = dataclasses.field(repr=False)
    """Texts that no message may show."""
    timeout: float
    """Longest silence of the server, in seconds."""
    max_retries: int
    backoff: float
    """Pause before the first retry, in seconds; it doubles, and is shortened by up to half."""

    @property
    def base_url(self) -> str:
        """The URL without a trailing slash."""
        port = "" if self.port is None else f":{self.port}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http{'s' if self.https else ''}://{host}{port}{self.path}"

    def hide(self, text: str) -> str:
        """`text` without the secrets in it."""
        for secret in self.secrets:
            text = text.replace(secret, "***")
        return text


def parse_base_url(base_url: object) -> tuple[bool, str, int | None, str]:
    """(whether https, host, port, path without a trailing slash); raises InvalidArgument."""
    try:
        if not isinstance(base_url, str) or re.search(r"[\s\x00-\x1f\x7f-\U0010ffff]", base_url):
            raise ValueError
        parts = urlsplit(base_url)
        host, port = parts.hostname, parts.port
        if parts.username is not None or parts.password is not None:
            raise InvalidArgument("base_url: must not hold a user or a password; use headers=")
        if parts.scheme not in ("http", "https") or not host or parts.query or parts.fragment:
            raise ValueError
    except InvalidArgument:
        raise
    except ValueError:
        raise InvalidArgument(
            f'base_url={base_url!r}: must be like "https://host:port/v1", without a query'
        ) from None
    return parts.scheme == "https", host, port, parts.path.rstrip("/")


def check_headers(
    api_key: object, headers: Mapping[str, str] | None
) -> tuple[dict[str, str], tuple[str, ...]]:
    """The headers of every request, and what of them must not be shown.

    Raises InvalidArgument, which shows no value.
    """
    sent = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    hidden: list[str] = []
    for name, value in dict(headers or {}).items():
        if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+", name):
            raise InvalidArgument(f"headers: {name!r} is not the name of a header")
        if not isinstance(value, str) or not re.fullmatch(r"[\t\x20-\x7e]*", value):
            raise InvalidArgument(f"headers: the value of {name} must be printable ASCII text")
        if name.lower() in ("content-length", "transfer-encoding", "host", "accept-encoding"):
            raise InvalidArgument(f"headers: {name} is set by the client")
        sent[name] = value
        # The credential of "Bearer …" alone, too; short values are no secrets.
        hidden += [text for text in {value, *value.split()} if len(text) >= 8]
    if api_key is not None:
        # Not shown, whatever is wrong with it.
        if not isinstance(api_key, str) or not re.fullmatch(r"[\x21-\x7e]+", api_key):
            raise InvalidArgument("api_key: must be printable ASCII text without spaces, or None")
        if any(name.lower() == "authorization" for name in sent):
            raise InvalidArgument("api_key: headers has an Authorization already")
        sent["Authorization"] = f"Bearer {api_key}"
        hidden.append(api_key)
    return sent, tuple(sorted(hidden, key=len, reverse=True))
