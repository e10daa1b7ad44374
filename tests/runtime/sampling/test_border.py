from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ramet.runtime.errors import InvalidArgument
from ramet.runtime.sampling import border as module
from ramet.runtime.sampling.border import (
    Border,
    Branch,
    border,
    check_choices,
    compatible_tokens,
    seed_ids,
)

Piece = tuple[str, str]


class Greedy:
    """A tokenizer that takes the longest known token from the left; ids below 256 are bytes."""

    def __init__(
        self,
        words: Sequence[str] = (),
        specials: Sequence[str] = ("<s>", "<end>"),
        *,
        bos: str | None = None,
        adds_bos: bool = False,
        end: str | None = "<end>",
        dummy_space: bool = False,
    ) -> None:
        self.table = [bytes([i]) for i in range(256)] + [word.encode() for word in words]
        self.ids = {data: i for i, data in enumerate(self.table)}
        self.specials = {text: len(self.table) + i for i, text in enumerate(specials)}
        self.table += [b""] * len(specials)
        self.special_ids = frozenset(self.specials.values())
        self.bos_id = self.specials[bos] if bos else None
        self.eos_ids = (self.specials[end],) if end else ()
        self.adds_bos = adds_bos
        self.dummy_space = dummy_space
        self.encoded = 0

    def token_bytes(self, token: int) -> bytes:
        return self.table[token]

    def encode(self, pieces: Sequence[Piece], *, continuation: bool = False) -> list[int]:
        text = "".join(text for text, _ in pieces)
        self.encoded += len(text)
        literal = "".join(("t" if kind == "text" else "c") * len(text) for text, kind in pieces)
        pattern = "|".join(map(re.escape, self.specials)) or "(?!)"
        ids: list[int] = []
        start = 0
        if self.dummy_space and not continuation:
            text, literal = " " + text, "t" + literal
        for match in re.finditer(pattern, text):
            if "c" not in literal[match.start() : match.end()]:
                ids += self._plain(text[start : match.start()].encode())
                ids.append(self.specials[match.group()])
                start = match.end()
        ids += self._plain(text[start:].encode())
        if self.adds_bos and not continuation and ids[:1] != [self.bos_id]:
            assert self.bos_id is not None
            ids.insert(0, self.bos_id)
        return ids

    def _plain(self, data: bytes) -> list[int]:
        ids = []
        longest = max(map(len, self.table))
        while data:
            size = next(n for n in range(min(longest, len(data)), 0, -1) if data[:n] in self.ids)
            ids.append(self.ids[data[:size]])
            data = data[size:]
        return ids

    def show(self, ids: Sequence[int]) -> list[str]:
        names = {i: text for text, i in self.specials.items()}
        return [names.get(i) or self.table[i].decode("latin-1") for i in ids]


def text(value: str) -> list[Piece]:
    return [(value, "text")]


def shown(tokenizer: Greedy, found: Border) -> tuple[list[str], bytes, list[list[str]]]:
    return (
        tokenizer.show(found.prompt_ids),
        found.rest,
        [tokenizer.show(branch.ids) for branch in found.branches],
    )


WORDS = Greedy([" yes", " no", " ", "yes", "no", "A", "A:", "=>", "search_", "web", "wiki"])


def test_the_border_is_where_all_choices_agree_with_the_prompt() -> None:
    found = border(WORDS, text("A: "), ["yes", "no"], empty_path=False)
    assert shown(WORDS, found) == (["A:"], b" ", [[" yes"], [" no"]])
    assert found.branches[0] == Branch(
        WORDS.encode(text(" yes")), 0, WORDS.encode(text(" yes")), [b"yes"]
    )


@pytest.mark.parametrize("empty_path", [False, True])
def test_where_the_space_stands_does_not_matter(empty_path: bool) -> None:
    left = border(WORDS, text("A:"), [" yes", " no"], empty_path=empty_path)
    right = border(WORDS, text("A: "), ["yes", "no"], empty_path=empty_path)
    paths = [[f.prompt_ids + branch.append for branch in f.branches] for f in (left, right)]
    assert paths[0] == paths[1]
    assert (left.rest, right.rest) == (b"", b" ")


def test_b03_entries_join_to_the_choice() -> None:
    choices = ["everyone", "search_web", "search_wiki", "yes"]
    found = border(WORDS, text("=> "), choices, empty_path=False)
    assert shown(WORDS, found)[:2] == (["=>"], b" ")
    assert [b"".join(b.entry_bytes).decode() for b in found.branches] == choices
    assert found.branches[1].entry_bytes == [b"search_", b"web"]
    assert found.branches[1].first == 1  # the space, then the choice's first token
    assert len(found.branches[1].ids) == 3


def test_pieces_are_tokenised_together() -> None:
    pieces = [("A", "text"), (":", "content"), (" ", "text")]
    found = border(WORDS, pieces, ["yes", "no"], empty_path=False)
    assert found == border(WORDS, text("A: "), ["yes", "no"], empty_path=False)


def test_nothing_pending_on_a_path() -> None:
    found = border(WORDS, [], ["yes", " no"], empty_path=False)
    assert shown(WORDS, found) == ([], b"", [["yes"], [" no"]])
    assert found == border(WORDS, text(""), ["yes", " no"], empty_path=False)


def test_a_token_over_several_characters_of_rest_and_choice() -> None:
    tokenizer = Greedy(["bcd", "cd", "abcde"])
    found = border(tokenizer, text("xab"), ["cdef", "c"], empty_path=False)
    assert shown(tokenizer, found) == (["x"], b"ab", [["abcde", "f"], ["a", "b", "c"]])
    assert [(b.first, b.entry_bytes) for b in found.branches] == [(0, [b"cde", b"f"]), (2, [b"c"])]


def test_a_choice_may_begin_inside_a_character_of_the_vocabulary() -> None:
    found = border(Greedy(), text("x"), ["€", "é"], empty_path=False)
    assert found.branches[0].entry_bytes == [b"\xe2", b"\x82", b"\xac"]


# The empty path


@pytest.mark.parametrize("bos", ["<s>", None])
def test_an_empty_path_is_scored_after_bos_or_the_end_id(bos: str | None) -> None:
    tokenizer = Greedy(["yes", " yes"], bos=bos, adds_bos=bos is not None, dummy_space=True)
    for pending in ([], text("")):
        found = border(tokenizer, pending, ["yes", "no"], empty_path=True)
        assert shown(tokenizer, found) == ([bos or "<end>"], b"", [["yes"], ["n", "o"]])
    assert tokenizer.show(seed_ids(tokenizer)) == [bos or "<end>"]


def test_an_empty_path_without_any_token_to_stand_for_it() -> None:
    with pytest.raises(InvalidArgument, match="neither a BOS nor an end token"):
        border(Greedy(end=None), [], ["a"], empty_path=True)


def test_bos_counts_as_the_paths_first_token() -> None:
    tokenizer = Greedy(["Ab", "Ac"], bos="<s>", adds_bos=True)
    found = border(tokenizer, text("A"), ["b", "c"], empty_path=True)
    assert shown(tokenizer, found) == (["<s>"], b"A", [["Ab"], ["Ac"]])
    found = border(tokenizer, text("<s>A"), ["b", "c"], empty_path=True)
    assert shown(tokenizer, found) == (["<s>"], b"A", [["Ab"], ["Ac"]])


def test_the_border_never_moves_before_the_paths_first_token() -> None:
    tokenizer = Greedy(["Ab", "Ac", "bc"])
    found = border(tokenizer, text("A"), ["b", "c", "bc"], empty_path=True)
    assert shown(tokenizer, found) == (["A"], b"", [["b"], ["c"], ["bc"]])
    # On a path with ids the same text may merge.
    found = border(tokenizer, text("A"), ["b", "c", "bc"], empty_path=False)
    assert shown(tokenizer, found) == ([], b"A", [["Ab"], ["Ac"], ["Ab", "c"]])


def test_text_after_the_first_token_continues_from_it() -> None:
    tokenizer = Greedy(["AB", "ABCd", "Cd"])
    found = border(tokenizer, text("ABC"), ["d", "e"], empty_path=True)
    assert shown(tokenizer, found) == (["AB"], b"C", [["Cd"], ["C", "e"]])
    assert found.branches[0].entry_bytes == [b"d"]


def test_the_first_token_is_not_left_in_the_middle_of_a_character() -> None:
    tokenizer = Greedy(["€x"])
    found = border(tokenizer, text("€"), ["x", "y"], empty_path=True)
    assert shown(tokenizer, found) == (["\xe2", "\x82", "\xac"], b"", [["x"], ["y"]])


def test_a_dummy_prefix_space_is_no_text_of_the_choice() -> None:
    tokenizer = Greedy([" A", " Ab"], dummy_space=True)
    found = border(tokenizer, text("A"), ["b", "c"], empty_path=True)
    assert shown(tokenizer, found) == ([" A"], b"", [["b"], ["c"]])
    found = border(tokenizer, text("xA"), ["b"], empty_path=True)
    assert shown(tokenizer, found) == ([" ", "x", "A"], b"", [["b"]])


# Special tokens


def test_the_border_stays_behind_special_tokens() -> None:
    tokenizer = Greedy([">b", "\nb", "\nc"])
    found = border(tokenizer, text("a<end>"), ["b", "c"], empty_path=False)
    assert shown(tokenizer, found) == (["a", "<end>"], b"", [["b"], ["c"]])
    found = border(tokenizer, text("a<end>\n"), ["b", "c"], empty_path=False)
    assert shown(tokenizer, found) == (["a", "<end>"], b"\n", [["\nb"], ["\nc"]])


def test_a_special_token_that_a_choice_would_undo_holds_the_border() -> None:
    class Undone(Greedy):
        def encode(self, pieces: Sequence[Piece], *, continuation: bool = False) -> list[int]:
            if any(kind == "content" for _, kind in pieces) and ("<end>y", "text") in pieces:
                pieces = [(t, "content") for t, _ in pieces]
            return super().encode(pieces, continuation=continuation)

    tokenizer = Undone(["yx"])
    found = border(tokenizer, text("<end>y"), ["x"], empty_path=False)
    assert shown(tokenizer, found) == (["<end>"], b"y", [["yx"]])


def test_special_text_in_a_choice_stays_text() -> None:
    found = border(WORDS, text("<e"), ["nd>", "<end>"], empty_path=False)
    assert not WORDS.special_ids & {t for b in found.branches for t in b.ids}
    assert [b"".join(b.entry_bytes) for b in found.branches] == [b"nd>", b"<end>"]


# B06: the empty choice


def test_the_empty_choice_is_one_entry_with_the_end_token() -> None:
    end = WORDS.specials["<end>"]
    found = border(WORDS, text("A:"), ["yes", ""], empty_path=False)
    assert found.branches[1] == Branch([end], 0, [], [b""])
    found = border(WORDS, text("A: "), ["yes", ""], empty_path=False)
    space = WORDS.encode(text(" "))
    assert found.rest == b" "
    assert found.branches[1] == Branch([*space, end], 1, space, [b""])
    found = border(WORDS, [], [""], empty_path=True)
    assert (found.prompt_ids, found.branches) == ([end], [Branch([end], 0, [], [b""])])


def test_the_empty_choice_needs_an_end_token() -> None:
    with pytest.raises(InvalidArgument, match="end token"):
        border(Greedy(end=None), text("a"), ["b", ""], empty_path=False)


# Bad choices


@pytest.mark.parametrize(
    ("choices", "words"),
    [
        ([], "at least one"),
        ("ab", "must be a list"),
        (None, "must be a list"),
        (["a", 3], r"choices\[1\]=3: must be a str"),
        (["a", "b", "a"], r"choices\[2\]='a': is the same as choices\[0\]"),
        (["a\ud800"], "lone surrogate"),
    ],
)
def test_bad_choices(choices: Any, words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        check_choices(choices)
    with pytest.raises(InvalidArgument, match=words):
        border(WORDS, text("a"), choices, empty_path=False)


class Normalising(Greedy):
    def encode(self, pieces: Sequence[Piece], *, continuation: bool = False) -> list[int]:
        joined = "".join(t for t, _ in pieces).replace("e\u0301", "é").replace("\u200b", "")
        return super().encode([(joined, "content")], continuation=continuation)


def test_choices_that_become_equal_or_nothing() -> None:
    with pytest.raises(InvalidArgument, match=r"choices\[1\] and choices\[0\] become the same"):
        border(Normalising(), text("x"), ["é", "e\u0301"], empty_path=False)
    with pytest.raises(InvalidArgument, match="drops it"):
        border(Normalising(), text("x"), ["\u200b", "a"], empty_path=False)


def test_a_choice_that_changes_the_prompts_last_character() -> None:
    found = border(Normalising(), text("xe"), ["\u0301y", "z"], empty_path=False)
    assert found.rest == b"e"
    assert [b"".join(b.entry_bytes) for b in found.branches] == ["éy".encode(), b"z"]


# The wire, and compatible tokens


def test_the_wire_is_plain_data() -> None:
    (branch,) = border(WORDS, text("A: "), ("yes",), empty_path=False).branches
    assert branch.to_wire() == {"ids": branch.ids, "first": 0, "append": branch.append}


def test_compatible_tokens() -> None:
    table = [b"", b" ", b" y", b"y", b"  ", b" yes", b"", b" n"]
    assert compatible_tokens(b" y", table) == [1, 2, 5]
    assert compatible_tokens(b" ", table) == [1, 2, 4, 5, 7]
    assert compatible_tokens(b"\n", table) == []
    assert compatible_tokens(b"", table) == list(range(8))


# Against the definition, with random vocabularies

ALPHABET = "ab €"
TOKENS = st.lists(st.text(alphabet=ALPHABET, min_size=2, max_size=4), max_size=6, unique=True)
CHOICES = st.lists(st.text(alphabet=ALPHABET, max_size=4), min_size=1, max_size=4, unique=True)
PENDING = st.lists(
    st.tuples(
        st.one_of(st.text(alphabet=ALPHABET, max_size=4), st.just("<end>")),
        st.sampled_from(["text", "content"]),
    ),
    max_size=3,
)


def common(lists: Sequence[Sequence[int]]) -> int:
    length = 0
    for column in zip(*lists, strict=False):
        if len(set(column)) > 1:
            break
        length += 1
    return length


@settings(max_examples=300)
@given(TOKENS, PENDING, CHOICES, st.booleans(), st.booleans())
def test_the_border_against_the_definition(
    words: list[str], pending: list[Piece], choices: list[str], empty: bool, adds_bos: bool
) -> None:
    tokenizer = Greedy(words, bos="<s>", adds_bos=adds_bos)
    found = border(tokenizer, pending, choices, empty_path=empty)
    base = tokenizer.encode(pending, continuation=not empty)
    whole = [tokenizer.encode([*pending, (c, "content")], continuation=not empty) for c in choices]
    if empty and not any(t for t, _ in pending):
        assert found.prompt_ids == [tokenizer.bos_id]
        assert found.rest == b""
    else:
        length = max(common([base, *whole]), int(empty))
        assert found.prompt_ids[:length] == base[:length]
        assert found.rest == b"".join(map(tokenizer.token_bytes, base[len(found.prompt_ids) :]))
    for choice, branch, ids in zip(choices, found.branches, whole, strict=True):
        assert b"".join(branch.entry_bytes) == choice.encode()
        assert len(branch.entry_bytes) == len(branch.ids) - branch.first
        assert 0 <= branch.first < len(branch.ids)
        before = b"".join(map(tokenizer.token_bytes, branch.ids[: branch.first]))
        assert len(before) <= len(found.rest)
        written = b"".join(map(tokenizer.token_bytes, branch.append))
        assert written == found.rest + choice.encode()
        assert branch.ids == (branch.append if choice else [*branch.append, *tokenizer.eos_ids])
        if common([base, *whole]) >= int(empty) and base:
            assert found.prompt_ids + branch.append == ids
            assert len(found.prompt_ids) == common([base, *whole])


# B07 and the window


def prompt(words: int) -> list[Piece]:
    return [("<end>", "text"), *((f" word{i % 7} and", "content") for i in range(words))]


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.sampled_from([" ab", " b", "\n", "ab", "<end>", ". "]), max_size=80),
    CHOICES,
    TOKENS,
    st.booleans(),
)
def test_a_window_changes_nothing(
    parts: list[str], choices: list[str], words: list[str], empty: bool
) -> None:
    assume("" not in choices)
    tokenizer = Greedy([" ab", " b", *(w for w in words if " " not in w[1:])])
    pending = text("".join(parts))
    expected = border(tokenizer, pending, choices, empty_path=empty)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "WINDOW_BYTES", 0)
        assert border(tokenizer, pending, choices, empty_path=empty) == expected


@pytest.mark.parametrize("ending", [" and", "<end>\n"])
def test_thousands_of_choices_do_not_read_the_prompt_again(ending: str) -> None:
    tokenizer = Greedy([" and", " word"])
    pending = [*prompt(300), (ending, "text")]
    choices = [str(i) for i in range(1000)]
    found = border(tokenizer, pending, choices, empty_path=False)
    assert len(found.branches) == 1000
    assert found.branches[123].entry_bytes == [b"1", b"2", b"3"]
    assert found.prompt_ids == tokenizer.encode(pending, continuation=True)
    assert tokenizer.encoded < 1000 * sum(len(t) for t, _ in pending) / 10
