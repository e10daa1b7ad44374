from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ramet.runtime.errors import GrammarError
from ramet.runtime.grammar.rules.lark_rules import lark_source

Follow = Callable[[str], Any]


def check(followed: Any, good: list[str], bad: list[str]) -> None:
    assert [text for text in good if not followed(text)] == []
    assert [text for text in bad if followed(text)] == []


@pytest.mark.parametrize(
    ("body", "good", "bad"),
    [
        ('"a" ["b"] "c"?', ["a", "abc", "ac"], ["b", "abb"]),
        ('"ab"i "c"', ["abc", "ABc", "aBc"], ["abC"]),
        ("/a.b/s", ["a\nb"], ["ab"]),
        ("/a # one\n b/x", ["ab"], ["a b"]),
        ('"a".."c"', ["a", "b", "c"], ["d", "", "ab"]),
        ('"a" ~ 2', ["aa"], ["a", "aaa"]),
        ('("a" | "b") ~ 1..2', ["a", "ba"], ["", "aaa"]),
        ('"a" -> one\n | "b" -> two', ["a", "b"], ["ab"]),
        ("( )", [""], ["a"]),
        (r'"\n\x41\u00e9\\\""', ['\nAé\\"'], []),
        (r"/\//", ["/"], ["\\/"]),
        (r"/\w+/", ["aé_1"], ["", "a b"]),
    ],
)
def test_expressions(body: str, good: list[str], bad: list[str], follow: Follow) -> None:
    for grammar in (f"start: {body}", f'start: "(" start ")" | x\nx: {body}'):
        check(follow(lark_source(grammar).lark), good, bad)


def test_what_only_shapes_the_tree(follow: Follow) -> None:
    grammar = """
    // a comment
    start.2: _list | ?x  # not here
    """
    with pytest.raises(GrammarError, match="line 3, column 22"):
        lark_source(grammar)
    grammar = 'start.2: _l\n_l: x+\n?x: Y -> z | "b"\n!w: "c"\nY.3: "a" Z\nZ.-1: /z/ | "zz"'
    check(follow(lark_source(grammar).lark), ["az", "azzb"], ["a", "c"])


def test_common_terminals(follow: Follow) -> None:
    grammar = """start: (ESCAPED_STRING | SIGNED_NUMBER | C_COMMENT | NAME) ("," start)?
    %import common.CNAME -> NAME
    %import common (ESCAPED_STRING, SIGNED_NUMBER, C_COMMENT, WS)
    %ignore WS
    """
    good = [r'"a\"b"', "-1.5e3", "/* ** */", "a_1", ' "" ,\n1 ']
    check(follow(lark_source(grammar).lark), good, ['"a"b"', "1.5.", "/* */ */", "1a", '"\n"'])


def test_what_is_ignored(follow: Follow) -> None:
    blanks = lark_source('start: "a" start "b" | /c+/\n%ignore " "\n%ignore /\\t+/').lark
    check(follow(blanks), [" a  a c b\t\tb ", "acb", " c"], ["a b", "c c", " "])
    comments = lark_source('start: "(" start* ")"\n%ignore /#[^\\n]*/\n%ignore /\\n/').lark
    check(follow(comments), ["(#)\n)", "(()#(\n#)\n)", "()#"], ["(#)", "(#)\n", "( )"])
    lines = 'start: "1" ("/" start)?\n%ignore /\\/\\/[^\\n]*\\n/\n%ignore " "'
    check(follow(lark_source(lines).lark), ["1 / 1", "1///c\n1", "1 //\n"], ["1///1", "1//"])
    at_once = lark_source('start: "x" "y"\n%ignore "--"').lark
    check(follow(at_once), ["x--y", "----xy--"], ["x-y", "x---y"])


@pytest.mark.parametrize(
    "ignored", ["/x+/", r"/\/\/[^\n]*/", '"/*"'], ids=["letters", "comments", "a sign"]
)
def test_what_is_ignored_must_be_told_apart(ignored: str) -> None:
    grammar = f'start: "x" start "/" | /[0-9*]+/\n%ignore {ignored}\n%ignore /#.*/'
    try:
        lark_source(grammar)
    except GrammarError as error:
        message = str(error)
    else:
        message = ""
    assert ("can't be told" in message) == (ignored != '"/*"')
    assert ignored in message or ignored == '"/*"'


def test_lazy_repetition_ends_where_it_can(follow: Follow) -> None:
    grammar = 'start: A | B | "(" start ")"\nA: /".*?"/\nB: "/*" /(.|\\n)*?/ "*/"'
    good = ['"a"', '""', "/* * \n **/", '("a")']
    check(follow(lark_source(grammar).lark), good, ['"a"b"', '"', "/* */ */", "/*/"])


@pytest.mark.parametrize(
    ("grammar", "message"),
    [
        ("", "line 1, column 1: there is no rule start"),
        ('x: "a"', "line 1, column 1: there is no rule start"),
        ("start: a", "line 1, column 8: there is no rule a"),
        ("start: A", "line 1, column 8: there is no terminal A"),
        ('start: "a"\nstart: "b"', "line 2, column 1: start is defined twice"),
        ('start: A\nA: "a"\n A: "b"', "line 3, column 2: A is defined twice"),
        ('start: "a', "line 1, column 8: "),
        ('start: ("a"', "line 1, column 12: "),
        ('start: "a" )', "line 1, column 12: "),
        ('start: t{"a"}\nt{x}: x', r"line 2, column 1: t{…}: templates are not supported"),
        ('start: start{"a"}', r"line 1, column 8: start{…}: templates are not supported"),
        ("%declare A\nstart: A", "line 1, column 10: %declare .* is not supported"),
        ('start: "a"\n%override start: "b"', "line 2, column 11: %override is not supported"),
        ('start: "a"\n%extend start: "b"', "line 2, column 9: %extend is not supported"),
        ("%import python.NAME\nstart: NAME", "line 1, column 9: .*only terminals of common"),
        ("%import .x.NAME\nstart: NAME", "line 1, column 10: .*only terminals of common"),
        ("%import common.NOPE\nstart: NOPE", "line 1, column 16: .*no such terminal"),
        ("%import common.INT -> int\nstart: int", "line 1, column 23: .*upper-case"),
        ('start: "a"\nA: b\nb: "x"', "line 2, column 4: rule b can't be part of terminal A"),
        ('start: A\nA: B\nB: "x" A?', "line 2, column 1: terminal A mentions itself"),
        ('start: A\nA: "x" -> y', "line 2, column 11: .*only options of rules"),
        ("start: /a(?=b)/", r"line 1, column 8: .*look-around \(\?= at position 1"),
        ("start: /a\\b/", "line 1, column 8: .*a word boundary"),
        ("start: /(/", "line 1, column 8: .*missing"),
        ("start: /a.*?b+/", "line 1, column 8: .*a lazy repetition must be"),
        ('start: A\nA: ("a" /b*?/)+ "c"', "line 2, column 9: .*a lazy repetition must be"),
        ('start: ""', "line 1, column 8: Empty terminals are not allowed"),
        ('start: "b".."a"', "line 1, column 8: .*not a range"),
        ('start: "a" ~ 3..1', "line 1, column 12: .*not a count"),
        ('__x: "a"\nstart: __x', "line 1, column 1: "),
        ('start: "a" start', r"no text satisfies it: .*\(start → start\)"),
    ],
)
def test_what_is_refused_and_where(grammar: str, message: str) -> None:
    with pytest.raises(GrammarError, match=f"^lark: {message}"):
        lark_source(grammar)


def test_files_are_never_read(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "common.lark").write_text('INT: "x"')
    (tmp_path / "other.lark").write_text('INT: "x"')
    monkeypatch.chdir(tmp_path)
    with pytest.raises(GrammarError, match="only terminals of common"):
        lark_source("start: INT\n%import other.INT")
    assert "x{30}" in lark_source("start: INT\n%import common.INT").lark
