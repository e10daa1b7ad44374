import types

import numpy as np

from ramet.runtime.model.attention_plan import build_plan

FIELDS = ("slot_start", "length", "row_start", "row_end", "key_pos")


def rows(lines, positions):
    columns = zip(*lines, strict=True) if lines else ([],) * 5
    items = types.SimpleNamespace(**dict(zip(FIELDS, map(list, columns), strict=True)))
    return types.SimpleNamespace(items=items, positions=positions)


def test_lists_become_lines():
    lines = [(10 * i, i + 1, i, i + 2, 3 * i) for i in range(17)]
    plan = build_plan(rows(lines, [4, 5, 6]))
    assert plan.items.dtype == plan.row_pos.dtype == np.int64
    assert plan.items.T.tolist() == [list(line) for line in lines]
    assert plan.row_pos.tolist() == [4, 5, 6]
    assert plan.num_rows == 3


def test_an_empty_plan_is_legal():
    plan = build_plan(rows([], []))
    assert plan.items.shape == (5, 0)
    assert plan.num_rows == 0


def test_gathered_is_handed_on():
    reads = []
    assert build_plan(rows([(0, 1, 0, 1, 0)], [0]), reads).gathered is reads
