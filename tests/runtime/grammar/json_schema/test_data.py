"""Real schemas with labelled documents: how many compile, and that no decision is wrong.

`python -m pytest -s` on this file prints the table.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from documents import Documents, in_order

from ramet.runtime.errors import GrammarError
from ramet.runtime.grammar.json_schema.checking import check_document

ROOT = Path(__file__).resolve().parents[4]
NAME = "shared/data/json_schemas.jsonl"
FILES = [folder / NAME for folder in (ROOT.parent, ROOT, *ROOT.parents)]


def rows() -> list[dict[str, Any]]:
    for path in FILES:
        if path.exists():
            return [json.loads(line) for line in path.read_text().splitlines()]
    pytest.skip(f"{NAME} is not there")


@pytest.mark.parametrize(("strict", "share"), [(True, 0.95), (False, 0.99)])
def test_real_schemas(strict: bool, share: float):
    found = rows()
    refused, wrong, right, left = [], [], 0, []
    for row in found:
        try:
            documents = Documents(row["schema"], strict=strict)
        except GrammarError as error:
            refused.append(f"{row['id']}: {error}")
            continue
        left += [f"{row['id']}: {what}" for what in documents.source.unenforced]
        for test in row["tests"]:
            data = in_order(test["data"], row["schema"])
            text = json.dumps(data, separators=(",", ":"), ensure_ascii=False)
            accepted = documents.accept(text)
            if accepted and documents.source.unenforced:
                accepted = not check_document(json.dumps(row["schema"]), text)
            if accepted == test["valid"]:
                right += 1
            else:
                wrong.append((row["id"], test["valid"], text[:200]))
    print(
        f"\nstrict={strict}: {len(found) - len(refused)} of {len(found)} compiled, "
        f"{right} decisions right, {len(wrong)} wrong",
        *(f"\n  refused {line}" for line in refused),
        *(f"\n  left to the finished document: {line}" for line in left),
    )
    assert not wrong
    assert len(refused) <= (1 - share) * len(found)
    assert len(found) >= 200
