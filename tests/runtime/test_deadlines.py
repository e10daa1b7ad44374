from ramet.runtime.deadlines import Deadlines


def test_calls_come_up_when_their_time_has_come():
    deadlines = Deadlines()
    for call, seconds in ((1, 5.0), (2, 1.0), (3, 3.0)):
        deadlines.add(call, 10.0, seconds)
    assert deadlines.expired(10.5) == []
    assert deadlines.expired(13.0) == [(2, 1.0), (3, 3.0)]
    assert deadlines.expired(14.0) == []
    assert len(deadlines) == 1


def test_calls_that_end_before_leave_nothing():
    deadlines = Deadlines()
    for call in range(1000):
        deadlines.add(call, 0.0, 1e9 - call)
        deadlines.discard(call)
        deadlines.discard(call)
    assert len(deadlines) == 0
    assert len(deadlines._heap) < 100
    assert deadlines.expired(2e9) == []
