import types

import numpy as np
import torch

from ramet.runtime.model.attention_plan import build_plan

FIELDS = ("slot_start", "length", "row_start", "row_end", "key_pos")


def items(*lines):
    columns = zip(*lines, strict=True) if lines else ([],) * 5
    return types.SimpleNamespace(**dict(zip(FIELDS, map(list, columns), strict=True)))


def test_lists_become_padded_tensors():
    lines = [(10 * i, i + 1, i, i + 2, 3 * i) for i in range(17)]
    plan = build_plan(items(*lines), [4, 5, 6], "cpu")
    assert plan.count == 17
    for column, name in enumerate(FIELDS):
        tensor = getattr(plan, name)
        assert tensor.dtype == torch.int32
        assert tensor.shape == (32,)
        assert tensor[:17].tolist() == [line[column] for line in lines]
        assert tensor[17:].tolist() == [0] * 15
        assert plan.host_items[column].tolist() == [line[column] for line in lines]
    assert plan.row_pos.dtype == torch.int32
    assert plan.row_pos.tolist() == [4, 5, 6]
    assert plan.host_row_pos.dtype == np.int64
    assert plan.num_rows == 3


def test_capacity_has_a_least_and_an_empty_plan_is_legal():
    assert build_plan(items((0, 1, 0, 1, 0)), [0], "cpu").length.shape == (16,)
    empty = build_plan(items(), [], "cpu")
    assert (empty.count, empty.num_rows) == (0, 0)
    assert empty.length.tolist() == [0] * 16


def test_gathered_is_handed_on():
    reads = []
    assert build_plan(items((0, 1, 0, 1, 0)), [0], "cpu", reads).gathered is reads
