from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from types import ModuleType

import lark
import pytest

Load = Callable[[str], ModuleType]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("7", 7),
        ("2 + 3", 5),
        ("2 - 3 - 4", -5),
        ("6 * 10 - 4", 56),
        ("(12 + 8) / 2", 10),
        ("((1 / 3)) * 3", 1),
        ("10 / 4", Fraction(5, 2)),
    ],
)
def test_trees_are_worked_out(load: Load, text: str, value: Fraction) -> None:
    program = load("expression")
    assert program.result(lark.Lark(program.GRAMMAR).parse(text)) == value


def test_the_examples_are_expressions(load: Load) -> None:
    program = load("expression")
    for _, expression in program.EXAMPLES:
        program.result(lark.Lark(program.GRAMMAR).parse(expression))


def test_help(load: Load, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        load("expression").main(["--help"])
    assert end.value.code == 0
    assert "--question" in capsys.readouterr().out
