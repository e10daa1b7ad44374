from __future__ import annotations

import pytest

from ramet.runtime.client.call import Call, CallResult
from ramet.runtime.client.token_path import TokenPath
from ramet.runtime.errors import BackendError


def _call() -> Call[CallResult]:
    return Call(1, lambda event: CallResult(["x"], event["ids"], list), lambda call_id: None)


def test_a_path_is_its_segments_in_order() -> None:
    call = _call()
    path = TokenPath().then([1, 2]).then(call).then([5])
    call.finish({"ids": [3, 4]})
    assert path.ids() == [1, 2, 3, 4, 5]


def test_forks_share_and_do_not_see_each_other() -> None:
    trunk = TokenPath().then([1])
    left, right = trunk.then([2]), trunk.then([3])
    assert (trunk.ids(), left.ids(), right.ids()) == ([1], [1, 2], [1, 3])


def test_min_len_counts_what_is_certain() -> None:
    path = TokenPath().then([1, 2]).then(_call()).then([5])
    assert path.min_len == 3


def test_a_failed_call_is_the_paths_error() -> None:
    call = _call()
    path = TokenPath().then(call)
    call.fail(BackendError("gone"))
    with pytest.raises(BackendError, match="gone"):
        path.ids()


def test_a_long_path_needs_no_recursion() -> None:
    path = TokenPath()
    for i in range(5_000):
        path = path.then([i])
    assert path.ids() == list(range(5_000))
    del path
