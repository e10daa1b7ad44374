from __future__ import annotations

import threading

from ramet.runtime.client.ring import Ring


def test_a_ring_before_or_during_the_wait_ends_it() -> None:
    ring = Ring()
    ring.ring()
    ring.ring()  # Once is all that is kept.
    assert ring.wait(5)
    assert not ring.wait(0.01)
    thread = threading.Thread(target=ring.ring)
    thread.start()
    assert ring.wait(20)
    thread.join()
