from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from scripted_runtime import id_of, words

from ramet.runtime.grammar.bits import bits_of
from ramet.runtime.grammar.vocabulary import Vocabulary
from ramet.runtime.tokenizer import Tokenizer


def tokens_of(bits: int) -> list[int]:
    return [token for token in range(bits.bit_length()) if bits >> token & 1]


def test_sets_are_bits() -> None:
    assert bits_of([]) == 0
    assert tokens_of(bits_of([5, 0, 300])) == [0, 5, 300]


def test_a_set_is_packed_into_words_for_the_models_whole_vocabulary() -> None:
    vocabulary = Vocabulary(Tokenizer.tiny(), 300)
    packed = vocabulary.packed(bits_of([0, 33, 299]))
    assert len(packed) == 4 * 10
    assert packed[0] == 1
    assert packed[4] == 2
    assert packed[37] == 1 << 3


def test_special_tokens_and_ends_have_no_text(worded: Callable[..., Tokenizer]) -> None:
    vocabulary = Vocabulary(tokenizer := worded("ab"))
    everything = b"\xff" * len(vocabulary.packed(0))
    silent = tokenizer.special_ids.union(tokenizer.eos_ids)
    assert tokens_of(vocabulary.text_bits(everything)) == [
        token for token in range(tokenizer.vocab_size) if token not in silent
    ]
    assert tokens_of(vocabulary.end_bits) == sorted(tokenizer.eos_ids)
    assert all(vocabulary.native.is_special_token(token) for token in tokenizer.special_ids)


@pytest.mark.parametrize("text", [b")", b"\n\n", b"END", b"\xe6\x98", b"E"])
def test_which_tokens_begin_a_text(worded: Callable[..., Tokenizer], text: bytes) -> None:
    vocabulary = Vocabulary(tokenizer := worded("EN", "END", "ENDS", "NO", ").", "\n\n\n", "是"))
    wanted = [
        token
        for token in range(tokenizer.vocab_size)
        if (data := tokenizer.token_bytes(token))
        and (text.startswith(data) or data.startswith(text))
    ]
    assert tokens_of(vocabulary.beginning(text)) == wanted
    assert wanted


def test_two_tokens_of_one_text_are_both_found(fallback: Callable[..., Tokenizer]) -> None:
    tokenizer = fallback("A")
    twice = [i for i in range(tokenizer.vocab_size) if tokenizer.token_bytes(i) == b"A"]
    assert len(twice) == 2
    assert tokens_of(Vocabulary(tokenizer).beginning(b"A")) == twice


def test_a_model_without_end_ids(tmp_path: Path) -> None:
    folder = words(tmp_path)
    for name in ("config.json", "generation_config.json", "tokenizer_config.json"):
        if (folder / name).exists():
            (folder / name).write_text(json.dumps({}))
    vocabulary = Vocabulary(tokenizer := Tokenizer.from_dir(folder))
    assert tokenizer.eos_ids == ()
    assert vocabulary.end_bits == 0
    assert vocabulary.native.vocab_size == tokenizer.vocab_size + 1
    assert id_of(tokenizer, "<s>") in tokenizer.special_ids


def test_a_text_is_spelled_by_the_longest_tokens_or_not_at_all(
    worded: Callable[..., Tokenizer],
) -> None:
    tokenizer = worded("ab", "abc", "cd")
    vocabulary = Vocabulary(tokenizer)
    spelled = vocabulary.spell(b"abcdxab")
    assert spelled is not None
    assert list(map(tokenizer.token_bytes, spelled)) == [b"abc", b"d", b"x", b"ab"]
    assert vocabulary.spell(b"") == ()
    del vocabulary._by_text[b"x"]
    assert vocabulary.spell(b"abcdxab") is None
