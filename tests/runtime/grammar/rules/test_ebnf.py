from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ramet.runtime.errors import GrammarError
from ramet.runtime.grammar.rules.ebnf import ebnf_source

Follow = Callable[[str], Any]


@pytest.mark.parametrize(
    ("body", "good", "bad"),
    [
        ("\"a\" 'b' [c] .", ["abcd", "abc\n", "abcé"], ["abc", "abcdd"]),
        (r'"\"\\\n\x41\u00e9\U0001F600"', ['"\\\nAé😀'], ["A"]),
        (r"[\]\-\\^a-c]+", ["]-\\^abc"], ["d", ""]),
        (r"[^\n\x41]", ["a", "é", "B"], ["A", "\n", ""]),
        ("[a-]", ["a", "-"], ["b"]),
        ('"a"{2}', ["aa"], ["a", "aaa"]),
        ('"a"{2,}', ["aa", "aaa"], ["a"]),
        ('"a"{ 1 , 2 }', ["a", "aa"], ["", "aaa"]),
        ('"a"{,2}', ["", "aa"], ["aaa"]),
        ('"a"{0}', [""], ["a"]),
        ('"a"?*', ["", "aaa"], ["b"]),
        ('| "a" |', ["", "a"], ["b"]),
        ('("a" | ("b" "c"))+ "d"', ["aad", "bcad"], ["d", "bd"]),
        ('"é"', ["é"], ["e"]),
    ],
)
def test_expressions(body: str, good: list[str], bad: list[str], follow: Follow) -> None:
    for grammar in (f"root ::= {body}", f'root ::= "(" root ")" | x\nx ::= {body}'):
        followed = follow(ebnf_source(grammar).lark)
        assert [text for text in good if not followed(text)] == []
        assert [text for text in bad if followed(text)] == []


def test_lines_and_comments(follow: Follow) -> None:
    grammar = """
    # first
    a-b.c_1 ::=   # of two
        "x"
      | root2 "y" # the end "
    root2 ::=
      "#" root   ::= a-b.c_1 "."
    """
    followed = follow(ebnf_source(grammar).lark)
    assert followed("x.")
    assert followed("#y.")


@pytest.mark.parametrize(
    ("grammar", "message"),
    [
        ("", "line 1, column 1: there is no rule root"),
        ('a ::= "x"', "there is no rule root, with which every text starts"),
        ("root ::= a", "line 1, column 10: there is no rule a"),
        ('root ::= "a"\n  root ::= "b"', "line 2, column 3: rule root is defined twice"),
        ('root ::= "a', "line 1, column 10: .*doesn't end on its line"),
        ("root ::= [a", "line 1, column 10: .*a class that doesn't end"),
        ('root ::= ("a"\nb ::= "c"', "line 1, column 10: this parenthesis is never closed"),
        ('root ::= "a")', "line 1, column 13: this parenthesis was never opened"),
        ('root ::= * "a"', "line 1, column 10: .*nothing before it to repeat"),
        ('root ::= "a" | +', "line 1, column 16: .*nothing before it to repeat"),
        ('root ::= "a"{2,1}', "the second count is the smaller one"),
        ('root ::= "a"{1000000000000}', "too large a count"),
        ('root ::= "a"{x}', "line 1, column 13: .*a count must be"),
        (r'root ::= "\q"', r"line 1, column 11: the escape \\q is not supported"),
        (r"root ::= [\d]", r"the escape \\d is not supported"),
        (r'root ::= "\ud800"', "no text contains this character"),
        ("root ::= [z-a]", "line 1, column 10: z-a: the range ends before it begins"),
        ("root ::= []", "an empty class"),
        ('root ::= "a" (= "b")', r"line 1, column 14: look-ahead \(=...\) is not supported"),
        ("root ::= <think>", "line 1, column 10: .*tokens are not supported"),
        ("root ::= /a/", "regexes are not supported here"),
        ('root = "a"', "line 1, column 6: "),
        ('"a" ::= root', "expected the name of a rule, found '\"a\"'"),
        ('root ::= "a" ::= "b"', "line 1, column 14: expected a rule, .*found '::='"),
        ("root", "expected ::= after root, found the end"),
        ('root ::= "a" root', r"no text satisfies it: .*\(root → root\)"),
        ("root ::= a\na ::= b\nb ::= a", r"no text satisfies it: .*\(root → a → b → a\)"),
        ("root ::= a{3}\na ::= [^\\x00-\\U0010FFFF]", "no text satisfies it"),
    ],
)
def test_what_is_refused_and_where(grammar: str, message: str) -> None:
    with pytest.raises(
        GrammarError, match=f"^ebnf: .*{message}" if message[:4] != "line" else f"^ebnf: {message}"
    ):
        ebnf_source(grammar)


def test_rules_without_texts_elsewhere_are_left_out(follow: Follow) -> None:
    followed = follow(ebnf_source('root ::= "a" | b\nb ::= b "x"\nunused ::= unused').lark)
    assert followed("a")
    assert followed.after("") == {"a"}
