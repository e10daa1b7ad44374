"""The border of a `select`: which ids a choice's score starts after, and which ids it scores.

Pending prompt text and a choice are tokenised together, so a token may reach across the place
where the prompt ends. The border is where all choices still agree with the prompt; what lies
behind it is scored per choice. Runs in the user's process, before the engine sees the call.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Protocol

from ramet.runtime.errors import InvalidArgument
from ramet.runtime.request import check_text

WINDOW_BYTES = 2**20
"""Prompt bytes, over all choices, up to which each choice is tokenised with the whole pending text.

Beyond, only a window at its end is, where a test shows that the ids before it can't change:
10,000 choices after a prompt of 1,000 tokens would take ten seconds otherwise.
"""

_WINDOW_TOKENS = 8


class Tokenizer(Protocol):
    """What the border needs of `ramet.runtime.tokenizer.Tokenizer`."""

    @property
    def bos_id(self) -> int | None:
        """The beginning-of-sequence token."""

    @property
    def eos_ids(self) -> tuple[int, ...]:
        """The model's end tokens."""

    @property
    def special_ids(self) -> frozenset[int]:
        """Tokens that carry no text."""

    def encode(self, pieces: Sequence[tuple[str, str]], *, continuation: bool = False) -> list[int]:
        """The ids of the joined pieces."""

    def token_bytes(self, token: int, /) -> bytes:
        """The bytes the token adds to the text."""


@dataclasses.dataclass(frozen=True, slots=True)
class Branch:
    """One choice below the border."""

    ids: list[int]
    """The tokens from the border on; for "" they end with the end id."""
    first: int
    """Index of the first token that carries bytes of the choice: `ids[:first + 1]` make the first
    entry, each later token one more."""
    append: list[int]
    """What the context gains below the border if this choice wins: `ids`, without the end id."""
    entry_bytes: list[bytes]
    """Per entry only the choice's bytes; joined, the choice."""

    def to_wire(self) -> dict[str, Any]:
        """The part the engine needs, as plain data."""
        return {"ids": self.ids, "first": self.first, "append": self.append}


@dataclasses.dataclass(frozen=True, slots=True)
class Border:
    """Where the choices of one `select` begin to differ from its prompt."""

    prompt_ids: list[int]
    """Ids to append to the context before scoring; the border is behind them."""
    rest: bytes
    """Prompt bytes after the border (r): every branch writes them before its choice."""
    branches: list[Branch]
    """One per choice, in order."""


def check_choices(choices: object) -> list[str]:
    """`choices` as a list, or InvalidArgument: a non-empty list of distinct, encodable texts."""
    if not isinstance(choices, (list, tuple)):
        raise InvalidArgument(f"choices={choices!r}: must be a list of str")
    if not choices:
        raise InvalidArgument("choices=[]: must have at least one text")
    seen: dict[str, int] = {}
    for index, choice in enumerate(choices):
        check_text(f"choices[{index}]", choice)
        first = seen.setdefault(choice, index)
        if first != index:
            raise InvalidArgument(f"choices[{index}]={choice!r}: is the same as choices[{first}]")
    return list(choices)


def seed_ids(tokenizer: Tokenizer) -> list[int]:
    """The one id that stands before an empty path, as context only: BOS, else the end id."""
    if tokenizer.bos_id is not None:
        return [tokenizer.bos_id]
    if not tokenizer.eos_ids:
        raise InvalidArgument(
            "the context is empty, and the tokenizer has neither a BOS nor an end token to stand "
            "for it: put text before the call"
        )
    return [tokenizer.eos_ids[0]]


def border(
    tokenizer: Tokenizer,
    pending: Sequence[tuple[str, str]],
    choices: Sequence[str],
    *,
    empty_path: bool,
) -> Border:
    """The border of `choices` after the `pending` pieces.

    The longest id prefix common to tokenise(pending) and to tokenise(pending + choice) for every
    choice; never before a special token, nor, with an empty path (`empty_path`: no ids precede the
    pending text), before the path's first token. Where that holds it back, the rest of the pending
    text and the choice are tokenised as a continuation after it. A path that is empty with its
    pending text gets `seed_ids`. Choices are content: special-token text in them stays text.

    Raises InvalidArgument for what `check_choices` refuses, for choices that become the same
    tokens, and for "" with a model that has no end token.
    """
    choices = check_choices(choices)
    if "" in choices and not tokenizer.eos_ids:
        raise InvalidArgument(
            f'choices[{choices.index("")}]="": is scored by the end token, which this model lacks'
        )
    pieces = [piece for piece in pending if piece[0]]
    base = tokenizer.encode(pieces, continuation=not empty_path) if pieces else []
    if not base and empty_path:
        pieces, base, seed = [], [], seed_ids(tokenizer)
    else:
        seed = []
    continued = not empty_path or bool(seed)
    start, encoded = _encode_choices(tokenizer, pieces, base, choices, continued)
    common = _agreed(base[start:], encoded)
    if start + common < _lowest(tokenizer, base, continued):
        start, common = _text_start(tokenizer, base, _lowest(tokenizer, base, continued)), 0
        encoded = _encode_tail(tokenizer, pieces, base[start:], choices)
    prompt = base[: start + common]
    branches = [
        _branch(tokenizer, base[start + common :], ids[common:], choice)
        for ids, choice in zip(encoded, choices, strict=True)
    ]
    _check_distinct(branches)
    return Border(seed + prompt, _text(tokenizer, base[start + common :]), branches)


def compatible_tokens(rest: bytes, token_bytes: Sequence[bytes]) -> list[int]:
    """Ids whose bytes are a prefix of `rest` or begin with it, from a table of bytes by id.

    Tokens without bytes, as special tokens are, are excluded; but everything is compatible with an
    empty `rest`, whose total probability is 1.
    """
    if not rest:
        return list(range(len(token_bytes)))
    return [
        token
        for token, data in enumerate(token_bytes)
        if data and (data.startswith(rest) or rest.startswith(data))
    ]


def _lowest(tokenizer: Tokenizer, base: list[int], continued: bool) -> int:
    """How many of `base`'s ids the border may not move before."""
    after_special = _after_special(tokenizer, base)
    return after_special if continued else max(after_special, min(1, len(base)))


def _after_special(tokenizer: Tokenizer, ids: list[int]) -> int:
    """The index behind the last special token, or 0."""
    special = tokenizer.special_ids
    return next((i + 1 for i in range(len(ids) - 1, -1, -1) if ids[i] in special), 0)


def _text_start(tokenizer: Tokenizer, base: list[int], start: int) -> int:
    """The first index from `start` on that isn't in the middle of a character."""
    while start < len(base) and 0x80 <= (_text(tokenizer, base[start:]) or b"a")[0] < 0xC0:
        start += 1
    return start


def _encode_choices(
    tokenizer: Tokenizer,
    pieces: list[tuple[str, str]],
    base: list[int],
    choices: Sequence[str],
    continued: bool,
) -> tuple[int, list[list[int]]]:
    """tokenise(pending + choice) of every choice, without its first `start` ids, which are base's.

    `start` is 0 unless there is so much text that a window at its end is worth looking for.
    """

    def whole(choice: str) -> list[int]:
        return tokenizer.encode([*pieces, (choice, "content")], continuation=continued)

    if sum(len(text) for text, _ in pieces) * len(choices) > WINDOW_BYTES:
        start = _window(tokenizer, pieces, base)
        if start:
            probes = [choices[0], max(choices, key=len)]
            tails = _encode_tail(tokenizer, pieces, base[start:], probes)
            if all(whole(c) == base[:start] + t for c, t in zip(probes, tails, strict=True)):
                encoded = _encode_tail(tokenizer, pieces, base[start:], choices)
                # An id that changes at the very start of a window inside text might come with a
                # change before it.
                if start == _after_special(tokenizer, base) or _agreed(base[start:], encoded):
                    return start, encoded
    return 0, [whole(choice) for choice in choices]


def _window(tokenizer: Tokenizer, pieces: list[tuple[str, str]], base: list[int]) -> int:
    """The last place in `base` before which tokens don't depend on what follows; 0 if unknown.

    That is behind a special token, which splits any text, or at least 8 tokens before the end,
    between a word and a space: no family of tokenizers joins `word| word`. That what follows
    doesn't depend on what is before is tested here, on the prompt, and by the caller on choices.
    """
    lowest = _after_special(tokenizer, base)
    start = lowest
    for i in range(len(base) - _WINDOW_TOKENS, lowest, -1):
        before, after = (tokenizer.token_bytes(token) for token in base[i - 1 : i + 1])
        if before[-1:].isalnum() and after[:1] == b" " and after[1:2].isalpha():
            start = i
            break
    return start if _encode_tail(tokenizer, pieces, base[start:], [""]) == [base[start:]] else 0


def _encode_tail(
    tokenizer: Tokenizer, pieces: list[tuple[str, str]], tail: list[int], choices: Sequence[str]
) -> list[list[int]]:
    """Each choice tokenised with the text of `tail`, the prompt's last ids, as a continuation."""
    data = _text(tokenizer, tail)
    head: list[tuple[str, str]] = []
    left = len(data)
    for text, kind in reversed(pieces):
        if not left:
            break
        part = text.encode()[-left:]
        left -= len(part)
        head.insert(0, (part.decode(errors="replace"), kind))
    if "".join(text for text, _ in head).encode() != data:
        head = [(data.decode(errors="replace"), "content")]  # the tokenizer normalises text
    return [tokenizer.encode([*head, (c, "content")], continuation=True) for c in choices]


def _agreed(base: Sequence[int], encoded: Sequence[Sequence[int]]) -> int:
    """The length of the longest prefix of `base` that all of `encoded` begin with."""
    base = list(base)
    for ids in encoded:
        if list(ids[: len(base)]) != base:
            base = base[: _common(base, ids)]
    return len(base)


def _branch(tokenizer: Tokenizer, rest: list[int], ids: list[int], choice: str) -> Branch:
    """The branch of `choice`: its `ids` below the border, where the prompt alone goes on `rest`."""
    if not choice:
        return Branch([*rest, tokenizer.eos_ids[0]], len(rest), list(rest), [b""])
    parts = [tokenizer.token_bytes(token) for token in ids]
    written, before = b"".join(parts), _text(tokenizer, rest)
    # A tokenizer that normalises text may change the prompt's last bytes too.
    left = len(before) if written.startswith(before) else _common(before, written)
    first = 0
    while first < len(parts) and len(parts[first]) <= left:
        left -= len(parts[first])
        first += 1
    if first == len(parts):
        raise InvalidArgument(
            f"choice {choice!r}: the tokenizer drops it, leaving no text to score"
        )
    return Branch(ids, first, list(ids), [parts[first][left:], *parts[first + 1 :]])


def _check_distinct(branches: Sequence[Branch]) -> None:
    seen: dict[tuple[int, ...], int] = {}
    for index, branch in enumerate(branches):
        first = seen.setdefault(tuple(branch.ids), index)
        if first != index:
            raise InvalidArgument(
                f"choices[{index}] and choices[{first}] become the same tokens {branch.ids}"
            )


def _common(left: Sequence[int], right: Sequence[int]) -> int:
    """The length of the longest common prefix."""
    length = 0
    for a, b in zip(left, right, strict=False):
        if a != b:
            break
        length += 1
    return length


def _text(tokenizer: Tokenizer, ids: Sequence[int]) -> bytes:
    return b"".join(tokenizer.token_bytes(token) for token in ids)


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
