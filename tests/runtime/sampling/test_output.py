from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ramet.runtime.request import SamplingParams
from ramet.runtime.sampling.output import Step, TextOutput

EOS, SPECIAL = 900, 901


def output(tokens: Sequence[bytes | str], **fields: object) -> tuple[TextOutput, list[Step]]:
    """Push tokens, given by what they write, until the end; EOS and SPECIAL write nothing."""
    table = {i: t.encode() if isinstance(t, str) else t for i, t in enumerate(tokens)}
    fields.setdefault("max_new_tokens", "context")
    out = TextOutput(lambda i: table.get(i, b""), SamplingParams.build(fields), (EOS,))
    steps = []
    for i in range(len(tokens)):
        steps.append(out.push(i))
        if out.finished:
            break
    return out, steps


def texts(steps: list[Step]) -> list[str]:
    return [step.text for step in steps]


@pytest.mark.parametrize(
    ("tokens", "fields", "text", "matched"),
    [
        (["ab1", "2c", "d"], {"stop_regex": "[0-9]+c"}, "ab", "[0-9]+c"),
        (["ab1", "2c", "d"], {"stop_regex": "[0-9]+c", "include_stop": True}, "ab12c", "[0-9]+c"),
        (["x", "aaa", "ay"], {"stop_regex": "(a+)+$"}, "x", "(a+)+$"),
        (["x1", "2END"], {"stop_regex": "2E", "stop": "1"}, "x", "1"),
        (["x1", "2END"], {"stop_regex": "12E", "stop": "END"}, "x", "12E"),
        (["x1", "2END"], {"stop_regex": "DN", "stop": "END"}, "x12", "END"),
        (["a", "b", "a", "b"], {"stop_regex": "ab", "min_new_tokens": 2}, "ab", "ab"),
    ],
)
def test_a_stop_regex_ends_the_text_where_it_first_matches(
    tokens: list[str], fields: dict[str, object], text: str, matched: str
) -> None:
    out, steps = output(tokens, **fields)
    assert (out.text, out.finished, out.matched) == (text, "stop", matched)
    assert "".join(texts(steps)) == text


def test_what_may_become_a_match_is_not_streamed() -> None:
    out, steps = output(["a<", "b", "c>d", "<e>"], stop_regex="<[a-z]>")
    assert texts(steps) == ["a", "", "<bc>d", ""]
    assert out.text == "a<bc>d"


# B27


@pytest.mark.parametrize(
    ("tokens", "text", "kept", "tail"),
    [
        (["xE", "ND!"], "x", 0, "x"),
        (["E", "N", "D"], "", 0, ""),
        (["fooENDbar"], "foo", 0, "foo"),
        (["foo", "END"], "foo", 1, ""),
        (["foo", " E", "ND"], "foo ", 1, " "),
    ],
)
def test_a_stop_matches_across_token_borders(
    tokens: list[str], text: str, kept: int, tail: str
) -> None:
    out, _ = output(tokens, stop="END")
    assert (out.text, out.finished, out.matched) == (text, "stop", "END")
    assert (out.kept, out.tail) == (kept, tail)


# B28, B29


def test_the_beginning_of_a_stop_is_never_sent() -> None:
    out, steps = output(["Conc", "lusion"], stop=["Conclusion"])
    assert texts(steps) == ["", ""]
    assert out.text == ""


def test_held_text_is_released_when_no_stop_follows() -> None:
    _, steps = output(["Conc", "rete"], stop=["Conclusion"])
    assert texts(steps) == ["", "Concrete"]


def test_text_that_begins_no_stop_is_sent_at_once() -> None:
    words = ["plain", " lower", " case"]
    _, steps = output(words, stop=["ZZZZZZZZ"])
    assert texts(steps) == words


def test_only_the_tail_that_begins_a_stop_is_held() -> None:
    _, steps = output(["ababa", "x"], stop=["abac"])
    assert texts(steps) == ["ab", "abax"]


# B31


@pytest.mark.parametrize(
    ("stop", "text"),
    [
        (["a"], "xx"),
        (["b", "a"], "xx"),
        ([], "xxaENDb"),
        ("END", "xxa"),
        (["END", "END"], "xxa"),
        ([f"{i:03}" for i in range(100)] + ["END"], "xxa"),
    ],
)
def test_stop_lists_of_all_kinds(stop: list[str] | str, text: str) -> None:
    out, _ = output(["xx", "aE", "NDb"], stop=stop)
    if out.finished is None:
        out.finish()
    assert out.text == text


# B33


@pytest.mark.parametrize("include", [False, True])
def test_the_reason_and_the_match_are_known(include: bool) -> None:
    fields = {"stop": [".", "!"], "include_stop": include}
    out, _ = output(["Hi", "!"], **fields)
    assert (out.text, out.finished, out.matched) == ("Hi!" if include else "Hi", "stop", "!")
    assert out.kept == (2 if include else 1)

    out = TextOutput({0: b"Hi"}.__getitem__, SamplingParams.build(fields), (EOS,))
    out.push(0)
    assert out.push(EOS) == Step("", "eos", EOS)
    assert (out.text, out.kept, out.tail) == ("Hi", 1, "")

    out, steps = output(["H", "i"], max_new_tokens=2, **fields)
    assert steps[-1] == Step("i", "length", None)
    assert (out.text, out.kept) == ("Hi", 2)


def test_a_stop_kept_inside_a_token_leaves_the_rest_to_the_tail() -> None:
    out, steps = output(["fo", "o.x"], stop=".", include_stop=True)
    assert texts(steps) == ["fo", "o."]
    assert (out.text, out.kept, out.tail) == ("foo.", 1, "o.")


# Which match wins


def test_of_matches_in_one_token_the_earliest_wins() -> None:
    out, _ = output(["xabcd"], stop=["bc", "abcd", "d"])
    assert (out.text, out.matched) == ("x", "abcd")


def test_of_matches_that_begin_together_the_longest_wins() -> None:
    out, _ = output(["xENDING"], stop=["END", "ENDING"], include_stop=True)
    assert (out.text, out.matched) == ("xENDING", "ENDING")


def test_the_first_token_that_completes_a_match_ends_the_call() -> None:
    out, _ = output(["ab", "c", "d"], stop=["abcd", "bc"])
    assert (out.text, out.matched, out.num_tokens) == ("a", "bc", 2)


# min_new_tokens (B116), end ids and stop ids


def test_no_stop_counts_before_min_new_tokens() -> None:
    tokens = [f"{i} " for i in range(30)]
    tokens[1] = tokens[24] = "\n"
    out, _ = output(tokens, stop="\n", min_new_tokens=20, max_new_tokens=30)
    assert out.text == "".join(tokens[:24])
    assert (out.kept, out.finished) == (24, "stop")


@pytest.mark.parametrize(("least", "end"), [(0, 1), (1, 1), (2, 3), (3, 3), (4, None)])
def test_a_match_counts_by_the_token_that_completes_it(least: int, end: int | None) -> None:
    out, _ = output(["E", "ND", "x", "END", "E"], stop="END", min_new_tokens=least)
    assert (out.num_tokens - 1 if out.finished else None) == end


def test_text_matched_too_early_is_not_matched_again() -> None:
    out, _ = output(["aa", "b", "ca"], stop="aa", min_new_tokens=1)
    assert out.finished is None
    out, _ = output(["aa", "a"], stop="aa", min_new_tokens=1)
    assert (out.text, out.matched) == ("a", "aa")


def test_end_ids_and_stop_ids_wait_for_min_new_tokens() -> None:
    params = SamplingParams(min_new_tokens=2, stop_token_ids=(7,))
    out = TextOutput(lambda i: b"s" if i == 7 else b"", params, (EOS,))
    assert list(out.banned) == [7, EOS]
    assert out.push(7) == Step("s", None, None)
    assert out.push(EOS) == Step("", None, None)
    assert not out.banned
    assert out.push(7) == Step("", "stop", 7)
    assert (out.text, out.kept) == ("s", 2)


def test_a_stop_id_stays_only_with_include_stop() -> None:
    for include in (False, True):
        params = SamplingParams(stop_token_ids=(1,), include_stop=include)
        out = TextOutput([b"a", b"."].__getitem__, params, (EOS,))
        out.push(0)
        assert out.push(1) == Step("." if include else "", "stop", 1)
        assert out.kept == 1 + include


def test_ignore_eos_makes_end_ids_ordinary() -> None:
    out = TextOutput(lambda i: b"", SamplingParams(ignore_eos=True, min_new_tokens=1), (EOS,))
    assert not out.banned
    out.push(0)
    assert out.push(EOS) == Step("", None, None)
    out.finish()
    assert out.kept == 2


def test_an_end_releases_held_text() -> None:
    out = TextOutput(lambda i: b"EN" if not i else b"", SamplingParams(stop=("END",)), (EOS,))
    assert out.push(0).text == ""
    assert out.push(EOS) == Step("EN", "eos", EOS)


def test_the_limit_lowers_max_new_tokens() -> None:
    for most in (5, "context"):
        out = TextOutput(lambda i: b"x", SamplingParams(max_new_tokens=most), (), limit=2)
        assert [out.push(0).finished for _ in range(2)] == [None, "length"]
    out = TextOutput(lambda i: b"x", SamplingParams(max_new_tokens=1), (), limit=2)
    assert out.push(0).finished == "length"


def test_a_stop_in_the_last_token_is_a_stop() -> None:
    out, _ = output(["a", "."], stop=".", max_new_tokens=2)
    assert out.finished == "stop"


def test_nothing_may_follow_the_end() -> None:
    out, _ = output(["."], stop=".")
    with pytest.raises(RuntimeError, match="after the end"):
        out.push(0)
    with pytest.raises(RuntimeError, match="already ended"):
        out.finish()


# Special tokens and characters


def test_special_tokens_before_the_cut_stay_and_do_not_interrupt_a_match() -> None:
    out, _ = output(["a", b"", "E", b"", "ND"], stop="END")
    assert (out.text, out.kept, out.tail) == ("a", 2, "")


def test_half_a_character_is_never_sent() -> None:
    data = "a€🙂".encode()
    out, steps = output([data[i : i + 1] for i in range(len(data))])
    assert texts(steps) == ["a", "", "", "€", "", "", "", "🙂"]
    assert out.text == "a€🙂"


def test_a_cut_token_that_completes_a_character_takes_it_whole_into_the_tail() -> None:
    euro = "€".encode()
    out, _ = output(["x", euro[:1], euro[1:2], euro[2:] + b"yEND"], stop="END")
    assert (out.text, out.kept, out.tail) == ("x€y", 1, "€y")


def test_a_cut_after_an_incomplete_character_keeps_what_the_reader_sees() -> None:
    out, _ = output(["x", b"y\xe2\x82END"], stop="END")
    assert (out.text, out.kept, out.tail) == ("xy\ufffd", 1, "y\ufffd")
    out, _ = output(["x", b"\xe2\x82", "END"], stop="END")
    assert (out.text, out.kept, out.tail) == ("x\ufffd", 2, "")
    out, _ = output(["x", b"\xe2\x82", "yEND"], stop="END")
    assert (out.text, out.kept, out.tail) == ("x\ufffdy", 2, "y")
    out, _ = output(["x", b"\xe2", b"\x82END"], stop="END")
    assert (out.text, out.kept, out.tail) == ("x\ufffd", 1, "\ufffd")


def test_the_broken_character_before_held_text_is_sent() -> None:
    _, steps = output([b"\xe2\x82E", b"x"], stop="END")
    assert texts(steps) == ["\ufffd", "Ex"]


# Properties, against a whole-text reference

PIECES = st.one_of(
    st.sampled_from([b"", b"a", b"b", b"ab", b"\xe2", b"\x82", b"\xac", b"\xf0\x9f", b"\x99"]),
    st.binary(max_size=3),
    st.text(alphabet="ab€", max_size=3).map(str.encode),
)
STOPS = st.lists(st.text(alphabet="ab€", min_size=1, max_size=3), max_size=3, unique=True)


def reference(
    tokens: list[bytes], stops: list[str], least: int, include: bool
) -> tuple[int, str | None]:
    """(where the text is cut, the stop) by looking at all text after every token."""
    for index in range(least, len(tokens)):
        old, new = b"".join(tokens[:index]), b"".join(tokens[: index + 1])
        matches = [
            (start, -len(stop.encode()), stop)
            for stop in stops
            for start in range(len(new))
            if new.startswith(stop.encode(), start) and start + len(stop.encode()) > len(old)
        ]
        if matches:
            start, size, stop = min(matches)
            return (start - size if include else start), stop
    return len(b"".join(tokens)), None


@settings(max_examples=300)
@given(st.lists(PIECES, min_size=1, max_size=8), STOPS, st.integers(0, 3), st.booleans())
def test_joined_deltas_are_the_text_before_the_cut(
    tokens: list[bytes], stops: list[str], least: int, include: bool
) -> None:
    out, steps = output(
        tokens, stop=stops, min_new_tokens=least, include_stop=include, max_new_tokens=99
    )
    if out.finished is None:
        steps.append(out.finish("abort"))
    cut, matched = reference(tokens, stops, least, include)
    whole = b"".join(tokens)[:cut]
    assert out.matched == matched
    assert out.text == "".join(texts(steps)) == whole.decode(errors="replace")
    # What the context's ids decode to.
    kept = b"".join(tokens[: out.kept])
    assert (kept + out.tail.encode()).decode(errors="replace") == out.text
    assert whole.startswith(kept)
    # As many whole tokens as the text allows, which only a split character makes fewer.
    allowed = [
        count
        for count in range(out.num_tokens + 1)
        if len(head := b"".join(tokens[:count])) <= cut
        and head.decode(errors="replace") + whole[len(head) :].decode(errors="replace") == out.text
    ]
    assert out.kept == max(allowed)


@settings(max_examples=300)
@given(st.lists(PIECES, min_size=1, max_size=8), STOPS)
def test_only_what_must_be_held_is_held(tokens: list[bytes], stops: list[str]) -> None:
    out, steps = output(tokens, stop=stops, min_new_tokens=50, max_new_tokens=99)
    prefixes = {s.encode()[:n] for s in stops for n in range(len(s.encode()))}
    for count in range(1, len(steps) + 1):
        data = b"".join(tokens[:count])
        held = max((len(p) for p in prefixes if data.endswith(p)), default=0)
        free = data[: len(data) - held]
        sent = "".join(texts(steps[:count]))
        if held:
            assert sent == free.decode(errors="replace")
        else:
            complete = free.decode(errors="replace")
            assert complete.startswith(sent)
            assert len(complete) - len(sent) <= 1  # an incomplete character, one U+FFFD if cut
    assert out.finish().finished == "length"


# Under a constraint


def constrained(tokens: Sequence[str], whole: Sequence[str], **fields: object) -> TextOutput:
    """Tokens under a constraint that accepts the texts of `whole`."""
    fields.setdefault("max_new_tokens", "context")
    out = TextOutput(
        lambda i: tokens[i].encode() if i < len(tokens) else b"",
        SamplingParams.build(fields),
        (EOS,),
        may_cut=lambda data, cut: bytes(data[:cut]).decode() in whole,
    )
    for i in range(len(tokens)):
        out.push(i)
        if out.finished:
            break
    return out


def test_a_stop_counts_where_the_rest_is_whole() -> None:
    out = constrained(["a)", "b)", "c)"], ["a)b"], stop=")")
    assert (out.text, out.matched, out.finished) == ("a)b", ")", "stop")
    out = constrained(["3b)"], ["3b"], stop=["b)", ")"])
    assert (out.text, out.matched) == ("3b", ")")
    out = constrained(["3b)"], ["3b", "3"], stop=["b)", ")"])
    assert (out.text, out.matched) == ("3", "b)")
    out = constrained(["a)", "b)"], ["a)b)"], stop=")", include_stop=True)
    assert (out.text, out.matched) == ("a)b)", ")")


def test_a_stop_id_counts_where_the_text_is_whole() -> None:
    out = constrained(["a", "b", "c"], ["ab"], stop_token_ids=[1, 2])
    assert (out.text, out.matched) == ("ab", 2)
    out = constrained(["a", "b", "c"], ["ab"], stop_token_ids=[1, 2], include_stop=True)
    assert (out.text, out.matched, out.kept) == ("ab", 1, 2)


def test_a_complete_text_ends_before_min_tokens_and_limits() -> None:
    params = SamplingParams.build({"min_tokens": 5, "max_tokens": 5, "stop": "kx"})
    out = TextOutput(lambda i: b"ok"[i : i + 1], params, (EOS,), may_cut=lambda data, cut: True)
    assert out.banned == ()
    assert out.push(0) == Step("o", None, None)
    assert out.push(1, complete=True) == Step("k", "stop", None)
    assert (out.text, out.kept) == ("ok", 2)
    last = TextOutput(lambda i: b"x", SamplingParams(max_new_tokens=1), (EOS,))
    assert last.push(0, complete=True).finished == "stop"


@pytest.mark.parametrize("limit", [3, None])
def test_quiet_tokens_need_no_push(limit: int | None) -> None:
    params = SamplingParams(max_new_tokens="context" if limit is None else limit)
    pushed, put = (
        TextOutput(lambda token: b"%d," % token, params, [9], streams=False) for _ in range(2)
    )
    assert put.quiet_tokens > 1
    for token in (1, 2):
        pushed.push(token)
        put.ids.append(token)
    assert put.num_tokens == pushed.num_tokens == 2
    assert put.push(9 if limit is None else 4) == pushed.push(9 if limit is None else 4)
    assert (put.text, put.kept, put.finished) == (pushed.text, pushed.kept, pushed.finished)
    assert put.text.startswith("1,2,")


@pytest.mark.parametrize(
    "fields", [{"stop": "x"}, {"stop_token_ids": [3]}, {"min_new_tokens": 1}, {"streams": True}]
)
def test_tokens_are_not_quiet_where_more_is_asked(fields: dict[str, object]) -> None:
    streams = bool(fields.pop("streams", False))
    params = SamplingParams.build({"max_new_tokens": 5, **fields})
    assert TextOutput(lambda _: b"a", params, [], streams=streams).quiet_tokens == 0
