from ramet.runtime.schedule.lengths import FinishLengths


def test_a_site_that_is_not_known_gets_a_first_guess_within_the_limit():
    lengths = FinishLengths()
    assert lengths.remaining("a:1", 0, 1000) == 128
    assert lengths.remaining("a:1", 0, 16) == 16
    assert lengths.remaining("a:1", 16, 16) == 0


def test_guesses_follow_what_calls_of_the_site_came_to():
    lengths = FinishLengths()
    for _ in range(50):
        lengths.record("short:1", 5)
        lengths.record("long:1", 300)
    assert lengths.remaining("short:1", 0, 1000) == 5
    assert lengths.remaining("short:1", 3, 1000) == 2
    assert lengths.remaining("long:1", 100, 1000) == 200


def test_one_that_outlives_the_guess_is_expected_to_go_on():
    lengths = FinishLengths()
    for _ in range(50):
        lengths.record("a:1", 5)
    assert lengths.remaining("a:1", 40, 1000) == 20
    assert lengths.remaining("a:1", 40, 45) == 5


def test_old_sites_are_forgotten():
    lengths = FinishLengths()
    for number in range(5000):
        lengths.record(f"a:{number}", 1)
    assert len(lengths._sites) == 4096
    assert lengths.remaining("a:0", 0, 1000) == 128
    assert lengths.remaining("a:4999", 0, 1000) == 1
