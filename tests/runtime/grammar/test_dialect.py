"""Whatever is accepted means what `re.fullmatch` means; the rest is refused with its place."""

from __future__ import annotations

import itertools
import re

import hypothesis
import hypothesis.strategies as st
import pytest

from ramet.runtime.errors import GrammarError
from ramet.runtime.grammar.compiler import Bounds, compile_constraint
from ramet.runtime.grammar.dialect import MAX_POSITIONS, parse
from ramet.runtime.grammar.pattern import num_positions
from ramet.runtime.grammar.spec import Constraint

ALPHABET = "abxyn\nY"
TEXTS = ["".join(t) for n in range(5) for t in itertools.product(ALPHABET, repeat=n)]


def accepted(regex: str, texts: list[str]) -> list[bool]:
    start = compile_constraint(Constraint("regex", regex), None, Bounds()).byte_matcher()
    found = []
    for text in texts:
        matcher = start.copy()
        found.append(all(map(matcher.advance, text.encode())) and matcher.accepting)
    return found


def expected(regex: str, texts: list[str]) -> list[bool]:
    pattern = re.compile(regex)
    return [pattern.fullmatch(text) is not None for text in texts]


@pytest.mark.parametrize(
    "regex",
    [
        "(?i)yes|x(?i:y)",
        "a(|b)",
        "(?:x)",
        "^x$",
        "x|^y",
        r"\Aa|b\Z",
        "(?m)^x$",
        "(a$|b)?",
        "(|a)*b",
        "(?:|a)+b",
        "(a|ab)(x|bxy)?",
        "(a*)*b",
        "(a?){3}b",
        "(a|b)*?x",
        "(?P<n>x)y",
        "[^a]b",
        "[]a]",
        "[^]a]x",
        "[a-b-]+",
        "[\\n]x|x\\n",
        ".x",
        "(?s).x",
        "(?s:.)a.",
        r"\w\s",
        r"\W|\S\S",
        "(?a)\\w+",
        "a{2,3}",
        "a{2,}",
        "a{,2}b",
        "a{0}b",
        "(a{2}){2}",
        "(?#said)x",
        "(?x) a b # and a comment",
        "(?i)[^a]",
        "(?i:a)(?-i:b)",
        "x*",
        "",
        "a|[^\\s\\S]x",
        "(a|b|)(x|)",
    ],
)
def test_an_accepted_regex_means_what_python_means(regex: str) -> None:
    assert accepted(regex, TEXTS) == expected(regex, TEXTS)


def pieces() -> st.SearchStrategy[str]:
    leaf = st.sampled_from(["a", "b", "x", ".", "[ab]", "[^a]", r"\w", r"\n", "(?i:y)", "", "n"])

    def grow(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        counts = st.sampled_from(["*", "+", "?", "*?", "{2}", "{0,2}", "{1,}"])
        return st.one_of(
            st.tuples(inner, inner).map("".join),
            st.tuples(inner, inner).map(lambda two: f"(?:{two[0]}|{two[1]})"),
            st.tuples(inner, counts).map(lambda two: f"(?:{two[0]}){two[1]}"),
        )

    return st.recursive(leaf, grow, max_leaves=6)


@hypothesis.settings(max_examples=60)
@hypothesis.given(pieces())
def test_random_regexes_mean_what_python_means(regex: str) -> None:
    texts = [text for text in TEXTS if len(text) < 4]
    assert accepted(regex, texts) == expected(regex, texts)


def test_classes_follow_unicode_as_pythons_do() -> None:
    texts = [*"aé是٣ſK\u2028\u00a0_-", "İ", "ß", "ẞ", "🐙", "Ⅷ", "ª"]
    for regex in (r"\w", r"\d", r"\s", r"\W", r"[^\d_]", "(?i)[k-s]", "(?i)ß", "(?i)i", "(?a)\\w"):
        assert accepted(regex, texts) == expected(regex, texts), regex


def test_a_dash_in_a_class_is_a_range() -> None:
    """B35 of the bug reports: from `"` to `_`, brackets included."""
    regex = '[A-Za-z"-_ ]+'
    texts = ["(tea)", "[tea]", "{tea}", "tea_", "té"]
    assert accepted(regex, texts) == expected(regex, texts) == [True, True, False, True, False]


def test_a_terminal_that_can_be_empty() -> None:
    """B54 of the bug reports, as far as a regex can say it."""
    regex = r"(>([^\n]*)\n)+"
    assert accepted(regex, [">\n>ab\n", ">\n>ab", "\n"]) == [True, False, False]


@pytest.mark.parametrize(
    ("regex", "construct", "position"),
    [
        ("(?!no)[a-z]+", "look-around (?!", 0),
        (r'"[^"]*(?<!\\)"', "look-around (?<!", 6),
        ("a(?=b)", "look-around (?=", 1),
        (r"\bcat\b", r"a word boundary \b", 0),
        (r"[\b]cat\B", r"a word boundary \B", 7),
        (r"(a)\1", r"a back-reference \1", 3),
        ("(?P<n>x)(?P=n)", "a back-reference (?P=", 8),
        ("(a)?(?(1)b|c)", "a condition (?(", 4),
        ("x(?>ab)", "an atomic group (?>", 1),
        ("ab*+", "a possessive quantifier *+", 2),
        ("x$y", "an anchor within the text $", 1),
        ("(^a)b(^c)", "an anchor within the text ^", 6),
        (r"[$^]\$$(?:x|\Z)", "an anchor within the text $", 6),
        ("(^)*x", "an anchor within the text ^", 1),
        ("(^a)*", "an anchor within the text ^", 1),
        ("[]", "unterminated character set", 0),
        ("(?<n>x)", "unknown extension ?<n", 1),
        ("a**", "multiple repeat", 2),
        ("(", "missing )", 0),
        ("a{3,2}", "min repeat greater than max repeat", 2),
    ],
)
def test_a_refusal_names_construct_and_position(regex: str, construct: str, position: int) -> None:
    """B36 of the bug reports."""
    with pytest.raises(GrammarError) as caught:
        parse(regex)
    assert construct in str(caught.value)
    assert f"at position {position}" in str(caught.value)
    assert repr(regex) in str(caught.value)


@pytest.mark.parametrize(
    ("regex", "why"),
    [
        (r"[^\s\S]", "no text matches"),
        ("a[^\\s\\S]b", "no text matches"),
        ("((a{1,100}){1,100}){1,100}", "too large"),
        ("a{99999999999}", "too large"),
        ("(?:a{1,4294967294}){1,4294967294}", "too large"),
        ("(" * 150 + ")" * 150, "nested"),
        ("(" * 5000 + ")" * 5000, "nested"),
    ],
    ids=str,
)
def test_what_is_too_much_is_refused(regex: str, why: str) -> None:
    with pytest.raises(GrammarError, match=why):
        parse(regex)


def test_a_lone_surrogate_is_no_character() -> None:
    with pytest.raises(GrammarError, match="no text"):
        parse(r"\ud800")
    assert accepted(r"[\ud7ff-\ue000]", ["\ud7ff", "\ue000", "a"]) == [True, True, False]


def test_the_size_is_that_of_the_counts_written_out() -> None:
    assert num_positions(parse("([a-z]{1,50} ){1,1000}")) == 51_000 <= MAX_POSITIONS
