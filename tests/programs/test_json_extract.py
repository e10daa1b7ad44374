from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import jsonschema
import pytest
from fake_backend import FakeBackend

import ramet.lang as rm
from ramet.lang.typed import type_reader
from ramet.runtime.grammar.source import Source

Load = Callable[[str], ModuleType]


def test_the_examples_are_records(load: Load) -> None:
    program = load("json_extract")
    reader = type_reader("type", program.Notice)
    schema = json.loads(reader.schema_text)
    assert list(schema["properties"]) == ["kind", "what", "coins", "phone"]
    records = re.findall(r"^Record: (.*)$", program.EXAMPLES, re.MULTILINE)
    assert len(records) == 5
    for text in records:
        jsonschema.validate(json.loads(text), schema)
        assert reader.read(text).model_dump_json() == text


def test_records_are_read_and_checked(
    load: Load,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    program = load("json_extract")
    monkeypatch.setattr("ramet.lang.constraints.source_of", lambda _: Source(""))

    def script(prompt: str, *_: object) -> str:
        what = prompt.split("Notice: ")[-1].split("\n")[0]
        coins = "null" if what == "free" else "5"
        return f'{{"kind":"sale","what":"{what}","coins":{coins},"phone":null}}'

    (tmp_path / "notices.txt").write_text("hat\nfree\n")
    backend = FakeBackend(script=script)
    rm.set_default_backend(backend)
    try:
        program.main(["--file", str(tmp_path / "notices.txt")])
    finally:
        rm.set_default_backend(None)
        backend.shutdown()
    lines = capsys.readouterr().out.splitlines()
    assert lines[0::2] == ["hat", "free"]
    assert "what='hat' coins=5" in lines[1]
    assert "is no Notice: Value error, what is for sale has a price" in lines[3]


def test_help(load: Load, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        load("json_extract").main(["--help"])
    assert end.value.code == 0
    assert "--file" in capsys.readouterr().out
