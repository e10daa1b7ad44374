"""The formats that are enforced, by examples of the standards behind them."""

from __future__ import annotations

import json

import pytest
from documents import Documents

from ramet.runtime.grammar.json_schema.formats import FORMATS

ROWS = {
    "date": ("2020-02-29 1999-12-31", "2020-02-30 2020-13-01 2020-1-1 2020-04-31"),
    "time": ("12:00:00Z 23:59:60.5+01:30", "12:00:00 24:00:00Z 12:60:00Z"),
    "date-time": (
        "2022-01-01T12:00:00.000Z",
        "2022-01-01 2022-01-01T12:00:00 2022-01-32T00:00:00Z",
    ),
    "duration": ("P1Y2M3D P3W PT1H P1DT12H", "P 1Y PT P1W2D P1S"),
    "email": ("a.b+c@example.org x@[127.0.0.1]", "a@ @b a.@b a..b@c"),
    "hostname": ("example.org a-b.c", "-a.b a_b a..b"),
    "ipv4": ("127.0.0.1 255.255.255.255", "256.0.0.1 1.2.3 01.2.3.4"),
    "ipv6": ("::1 1:2:3:4:5:6:7:8 fe80::1 :: ::ffff:1.2.3.4", "1:2 ::: 1:2:3:4:5:6:7:8:9 12345::"),
    "uuid": ("2EB8AA08-AA98-11EA-B4AA-73B441D16380", "2eb8aa08-aa98-11ea-b4aa73b441d16380"),
    "uri": ("https://example.com/a?b#c urn:isbn:1 mailto:a@b http://[::1]:80/", "abc //a/b a\\b:c"),
    "uri-reference": ("/a/b ../x #y http://a", "a\\b http://[::1"),
    "json-pointer": ("/a/b~0c~1 /", "a /a~2"),
}


def test_every_format_has_examples():
    assert set(ROWS) == set(FORMATS)


@pytest.mark.parametrize("name", ROWS)
def test_formats(name: str):
    grammar = Documents({"type": "string", "format": name})
    right, wrong = ROWS[name]
    assert [text for text in right.split(" ") if not grammar.accept(json.dumps(text))] == []
    assert [text for text in wrong.split(" ") if grammar.accept(json.dumps(text))] == []
