"""A token of the built-in vocabulary is unmasked if and only if the constraint takes it: every one,
at states of random walks, by the package regex, which knows whether a text is the beginning of a
match. (The standing invariant of the bug reports.)"""

from __future__ import annotations

import random

import pytest
import regex

from ramet.runtime.builtin_model import resolve_model
from ramet.runtime.grammar.compiler import Compilation, Compiler
from ramet.runtime.grammar.guide import Guide
from ramet.runtime.grammar.jump import Jumps
from ramet.runtime.grammar.spec import Constraint
from ramet.runtime.grammar.vocabulary import Vocabulary
from ramet.runtime.request import SamplingParams
from ramet.runtime.tokenizer import Tokenizer

HEX = "[0-9A-Fa-f]"
PAIR = rf"[Dd][89ABab]{HEX}{{2}}\\u[Dd][C-Fc-f]{HEX}{{2}}"
CODE = rf"(?:[0-9A-CE-Fa-ce-f]{HEX}{{3}}|[Dd][0-7]{HEX}{{2}}|{PAIR})"
STRING = rf'(?:"(?:[^"\\\x00-\x1f]|\\["\\/bfnrt]|\\u{CODE})*")'
CASES = [
    ("regex", "[A-Za-z]+( [A-Za-z]+){0,3}[.!?]", None),
    ("regex", r"(?i)(yes|no|maybe), because \w+", None),
    ("regex", r"\d{1,3}(,\d{3})*(\.\d+)?", None),
    ("regex", "[^ab\n]{2,9}|ab+", None),
    ("regex", "(是|否|不确定|[а-я]+)", None),
    ("json_schema", '{"enum":["red","green",3,null,true]}', r'"red"|"green"|3|null|true'),
    (
        "json_schema",
        '{"type":"array","items":{"type":"boolean"}}',
        r"\[(?:(true|false)(,(true|false))*)?\]",
    ),
    (
        "json_schema",
        '{"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"boolean"}},'
        '"required":["b"],"additionalProperties":false}',
        r'\{(?:"a":-?(?:0|[1-9][0-9]*),)?"b":(?:true|false)\}',
    ),
    ("json_schema", '{"type":"array","items":{"type":"string"},"maxItems":1}', rf"\[{STRING}?\]"),
    (
        "ebnf",
        'root ::= item ("," item)*\nitem ::= [a-z]+ "=" [0-9]+',
        "[a-z]+=[0-9]+(?:,[a-z]+=[0-9]+)*",
    ),
    ("lark", 'start: "x" | "xyz" tail?\ntail: "yZ" /[a-z]*/', "x|xyz(?:yZ[a-z]*)?"),
]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    """The built-in model's."""
    return Tokenizer.from_dir(resolve_model("smollm2-135m").dir)


@pytest.fixture(scope="module")
def compiler(tokenizer: Tokenizer) -> Compiler:
    """For its vocabulary."""
    return Compiler(Vocabulary(tokenizer))


@pytest.mark.parametrize(("kind", "text", "same"), CASES)
def test_every_token_is_unmasked_if_and_only_if_it_may_follow(
    tokenizer: Tokenizer, compiler: Compiler, kind: str, text: str, same: str | None
) -> None:
    def encode(written: str) -> list[int]:
        return tokenizer.encode([(written, "content")], continuation=True)

    oracle = regex.compile(same or text, flags=regex.V0)
    silent = tokenizer.special_ids.union(tokenizer.eos_ids)
    table = {}
    for token in range(tokenizer.vocab_size):
        data = tokenizer.token_bytes(token)
        if token in silent or not data:
            continue
        try:
            table[token] = data.decode()
        except UnicodeDecodeError:
            continue  # A piece of a character: the next test's.
    draw = random.Random(text)
    grammar = compiler.compile(Constraint(kind, text))
    matcher = grammar.matcher()
    written = ""
    taken: list[int] = []
    for _ in range(6):
        bits = matcher.next_tokens
        allowed = {token for token in table if bits >> token & 1} if bits else set()
        expected = {
            token
            for token, piece in table.items()
            if oracle.fullmatch(written + piece, partial=True) is not None
        }
        assert allowed == expected, (written, [table[t] for t in allowed ^ expected][:10])
        assert not any(bits >> token & 1 for token in silent)
        guide = Guide(Compilation.of(grammar), SamplingParams(), Jumps(compiler.vocabulary, encode))
        guide.begin(1 << 20)
        for token in taken:
            guide.take(token, True)
        if allowed or matcher.accepting:
            mask = int.from_bytes(guide.mask(True), "little")
            ends = {token for token in tokenizer.eos_ids if mask >> token & 1}
            assert ends == (set(tokenizer.eos_ids) if matcher.accepting else set())
        assert matcher.accepting == bool(oracle.fullmatch(written))
        if not allowed:
            break
        token = draw.choice(sorted(allowed))
        assert matcher.advance(token)
        taken.append(token)
        written += table[token]


def test_pieces_of_characters(tokenizer: Tokenizer, compiler: Compiler) -> None:
    """B37 of the bug reports, with the real vocabulary: what can still become 🐀 to 🐿."""
    matcher = compiler.compile(Constraint("regex", "[🐀-🐿]+")).matcher()
    wanted = [chr(code).encode() for code in range(ord("🐀"), ord("🐿") + 1)]
    for written in (b"", b"\xf0", b"\xf0\x9f", b"\xf0\x9f\x90"):
        bits = matcher.next_tokens
        for token in range(tokenizer.vocab_size):
            data = written + tokenizer.token_bytes(token)
            if data == written or token in tokenizer.special_ids:
                continue
            whole = len(data) // 4 * 4
            chunks = [data[at : at + 4] for at in range(0, whole, 4)]
            fits = all(chunk in wanted for chunk in chunks) and any(
                character.startswith(data[whole:]) for character in wanted
            )
            assert bool(bits >> token & 1) == fits, (written, data)
        following = b"\xf0\x9f\x90\x99"[len(written)]
        single = next(
            t
            for t in range(tokenizer.vocab_size)
            if tokenizer.token_bytes(t) == bytes((following,))
        )
        assert matcher.advance(single)
    assert matcher.accepting
