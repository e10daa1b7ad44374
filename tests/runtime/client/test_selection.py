from __future__ import annotations

import math
from typing import Any

from ramet.runtime.client.selection import Selection
from ramet.runtime.client.token_path import TokenPath
from ramet.runtime.tokenizer import Tokenizer


def _selection(*choices: str) -> Selection:
    return Selection.plan(Tokenizer.tiny(), [("a:", "text")], choices, empty_path=True)


def _event(**result: Any) -> dict[str, Any]:
    meta = {"prompt_tokens": 2, "cached_tokens": 0, "computed_tokens": 3}
    return {"ev": "done", "call": 1, "results": [result], "meta": meta}


def test_the_wire_form_is_plain_data_from_the_border() -> None:
    wire = _selection("yes", "").to_wire()
    end = Tokenizer.tiny().eos_ids[0]
    assert wire == {
        "choices": [
            {"ids": list(b"yes"), "first": 0, "append": list(b"yes")},
            {"ids": [end], "first": 0, "append": []},
        ],
        "rest": [],
        "prefix": [],
    }


def test_the_result_is_the_chosen_text_and_its_ids() -> None:
    selection = _selection("yes", "nó")
    event = _event(
        index=1,
        scores=[-1.0, -0.25],
        entries=[[-1.0] * 3, [-0.25] * 3],
        probabilities=None,
        append=list("nó".encode()),
    )
    result = selection.result(event, TokenPath(None, [97, 58]))
    assert (result.text, result.index) == ("nó", 1)
    assert result.entered == list("nó".encode())
    meta = result.meta[0]
    assert meta["prompt_token_ids"] == [97, 58]
    assert meta["computed_tokens"] == 3
    assert meta["scores"] == [-1.0, -0.25]
    assert meta["probabilities"] is None
    chosen = meta["choices"][1]
    assert chosen == {
        "text": "nó",
        "token_ids": list("nó".encode()),
        "tokens": ["n", "", "ó"],
        "logprobs": [-0.25] * 3,
        "score": -0.25,
    }


def test_what_cannot_be_written_scores_minus_infinity() -> None:
    event = _event(
        index=0,
        scores=[-1.0, None],
        entries=[[-1.0], [None]],
        unconditional=[[None], [-3.0]],
        probabilities=[1.0, 0.0],
        append=[120],
    )
    meta = _selection("x", "y").result(event, TokenPath()).meta[0]
    assert meta["scores"] == [-1.0, -math.inf]
    assert meta["choices"][1]["logprobs"] == [-math.inf]
    assert meta["choices"][1]["unconditional_logprobs"] == [-3.0]
    assert meta["probabilities"] == [1.0, 0.0]
