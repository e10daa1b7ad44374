"""Vocabularies made to measure for the tests of constraints."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from scripted_runtime import sentencepiece, words

from ramet.runtime.grammar.compiler import Bounds, Compiler
from ramet.runtime.grammar.limits import LARGE, USUAL, Limits
from ramet.runtime.grammar.matcher import Matcher
from ramet.runtime.grammar.spec import Constraint
from ramet.runtime.grammar.vocabulary import Vocabulary
from ramet.runtime.tokenizer import Tokenizer

Words = Callable[..., Tokenizer]


@pytest.fixture
def worded(tmp_path: Path) -> Words:
    """A byte-level tokenizer with some tokens more."""
    return lambda *tokens: Tokenizer.from_dir(words(tmp_path, tokens))


@pytest.fixture
def fallback(tmp_path: Path) -> Words:
    """A tokenizer of sentencepiece's kind with some pieces and all byte tokens."""
    return lambda *pieces: Tokenizer.from_dir(sentencepiece(tmp_path, pieces))


def matcher(tokenizer: Tokenizer, regex: str, limits: Limits | None = None) -> Matcher:
    compiler = Compiler(
        Vocabulary(tokenizer), bounds=Bounds(usual=limits or USUAL, large=limits or LARGE)
    )
    return compiler.compile(Constraint("regex", regex)).matcher()


@pytest.fixture
def match() -> Callable[..., Matcher]:
    """A matcher of a regex over a tokenizer."""
    return matcher
