def test_num_rows_and_fresh_scratch(make_plan):
    first, second = make_plan([(0, 2, 0, 2, 0)], [0, 1]), make_plan([(0, 2, 0, 2, 0)], [0, 1])
    assert first.num_rows == 2
    assert first.items.tolist() == [[0], [2], [0], [2], [0]]
    first.derived["key"] = 1
    assert second.derived == {}
    assert first.gathered is None
