from __future__ import annotations

import threading
from typing import Any

import pytest
from chat_templates import LLAMA_3
from fake_backend import FakeBackend, MakeBackend

import ramet.lang as rm

pytestmark = pytest.mark.timeout(30)
State = rm.ProgramState


def run(body: Any, **kwargs: Any) -> State:
    return rm.function(body).run(**kwargs)


def test_writing_returns_at_once_and_reading_waits(backend: FakeBackend) -> None:
    def body(s: State) -> None:
        backend.gate.clear()
        s += "a" + rm.gen("x") + "b" + rm.gen("y")
        assert s._branch.segments[0] == ("a", "text")
        assert not backend.params or backend.num_running
        threading.Timer(0.02, backend.gate.set).start()
        assert s["x"] == "[1]"
        assert s["y"] == "[5]"

    assert run(body).text() == "a[1]b[5]"


def test_literals_are_pending_until_a_call_needs_them(backend: FakeBackend) -> None:
    def body(s: State) -> None:
        s += "a"
        s += "b" + rm.gen("x") + "tail"
        assert s.text() == "ab[2]tail"

    run(body)
    assert backend.prompts == ["ab"]
    assert backend.num_calls == 1


def test_kinds_of_values(make_backend: MakeBackend) -> None:
    make_backend(lambda prompt, params, sample: f"s{sample}")

    def body(s: State) -> None:
        s += rm.gen("one") + rm.gen("three", n=3)
        s["set"] = [1, 2]
        s.set_var("also", None)

    state = run(body)
    assert state["one"] == state.value("one") == state.get_var("one") == "s0"
    assert state["three"] == ["s0", "s1", "s2"]
    assert state["set"] == [1, 2]
    assert state["also"] is None
    assert state.text() == "s0s0"
    assert len(state.meta("three")) == 3
    assert state.meta("one")["finish_reason"] == "eos"
    assert state.get_meta_info("one") == state.meta("one")
    with pytest.raises(rm.ProgramError, match="no call"):
        state.meta("set")


def test_n_samples_inside_a_role_and_a_next_turn(make_backend: MakeBackend) -> None:
    make_backend(lambda prompt, params, sample: f"s{sample}")

    def body(s: State) -> None:
        s += rm.user("u") + rm.assistant(rm.gen("a", n=3)) + rm.user("v")
        s += rm.assistant(rm.gen("b"))

    state = run(body)
    assert (state["a"], state["b"]) == (["s0", "s1", "s2"], "s0")
    assert [m["content"] for m in state.messages()] == ["u", "s0", "v", "s0"]


def test_an_unknown_name_is_an_error_that_names_the_known(backend: FakeBackend) -> None:
    def body(s: State) -> None:
        s += rm.gen("x")
        assert "x" in s
        assert "y" not in s
        with pytest.raises(rm.ProgramError, match=r"'y'.*variables are: x"):
            _ = s["y"]

    state = run(body)
    for read in (state.value, state.meta, state.history, lambda name: list(state.text_iter(name))):
        with pytest.raises(rm.ProgramError, match="'y'"):
            read("y")


def test_the_last_value_of_a_name_counts_and_all_are_kept(backend: FakeBackend) -> None:
    def body(s: State) -> None:
        for question in ("a", "bb", "ccc"):
            s += question + rm.gen("j", max_tokens=1)
            fork = s.fork(1)
        s["j"] = "own"
        assert fork[0].history("j") == ["["] * 3

    state = run(body)
    assert state["j"] == "own"
    assert state.history("j") == ["[", "[", "[", "own"]


def test_an_empty_choice_wins_and_the_variable_exists(make_backend: MakeBackend) -> None:
    make_backend(pick=lambda prompt, choices: choices.index(""))

    def body(s: State) -> None:
        s += "w" + rm.select("tag", ["NOUN", "VERB", ""])

    state = run(body)
    assert state["tag"] == ""
    assert state.text() == "w"


def test_select_sends_rule_and_temperature(backend: FakeBackend) -> None:
    def body(s: State) -> None:
        s += rm.select("a", ["x", "y"]) + rm.gen("b", choices=["z"])
        s += rm.select("c", ["p"], temperature=0.5, choices_method=rm.exact_likelihood)

    state = run(body, temperature=0.9)
    assert [entry for _, entry in backend.log] == [
        ("token_length_normalized", 0.0),
        ("token_length_normalized", 0.0),
        ("exact_likelihood", 0.5),
    ]
    assert state.text() == "xzp"


def test_scopes_messages_and_role_blocks(make_backend: MakeBackend) -> None:
    backend = make_backend(template=LLAMA_3, bos="<s>")

    def body(s: State) -> None:
        with s.system():
            s += "  Be brief. "
        s.user("Hi")
        with s.var_scope("all"), s.assistant():
            s += "So: " + rm.gen("a")

    state = run(body)
    assert state.messages() == [
        {"role": "system", "content": "  Be brief. "},
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "So: " + state["a"]},
    ]
    assert state.text() == backend.tokenizer.render_chat(state.messages())
    header = "<|start_header_id|>assistant<|end_header_id|>\n\n"
    assert state["all"] == f"{header}So: {state['a']}<|eot_id|>"
    assert "".join(state.text_iter("all")) == state["all"]


def test_user_content_and_special_text_have_their_kinds(backend: FakeBackend) -> None:
    def body(s: State) -> None:
        s += "<|a|>"
        s += rm.user("<|im_end|>" + rm.special("<|b|>"))

    run(body)
    assert backend.roots[0].pieces == [
        ("<|a|>", "text"),
        ("<|im_start|>user\n", "text"),
        ("<|im_end|>", "content"),
        ("<|b|>", "text"),
        ("<|im_end|>\n", "text"),
    ]


def test_roles_without_a_template_that_takes_them_raise(make_backend: MakeBackend) -> None:
    make_backend(template="{{ raise_exception('no roles here') }}")
    for block in (rm.user("x"), rm.system_begin(), rm.assistant(rm.gen("x"))):
        with pytest.raises(rm.ProgramError, match="no roles here"):
            run(lambda s, block=block: s.__iadd__(block))


def test_after_its_end_a_state_takes_variables_only(backend: FakeBackend) -> None:
    state = run(lambda s: None)
    state.note = "kept"  # type: ignore[attr-defined]
    state["x"] = 1
    assert state["x"] == 1
    for write in (lambda: state.__iadd__("a"), lambda: state.__iadd__(rm.gen()), state.fork):
        with pytest.raises(rm.ProgramError, match="has ended"):
            write()


def test_nothing_is_sent_when_one_argument_of_a_sum_is_wrong(backend: FakeBackend) -> None:
    with pytest.raises(rm.InvalidArgument, match="min_new_tokens"):
        run(lambda s: s.__iadd__("a" + rm.gen("x") + rm.gen("y", min_tokens=200)))
    assert backend.num_calls == 0
    with pytest.raises(rm.InvalidArgument, match="vocabulary"):
        run(lambda s: s.__iadd__(rm.gen("x", logit_bias={10**6: 1})))
    with pytest.raises(rm.InvalidArgument, match="NoneType"):
        run(lambda s: s.__iadd__(None))


def test_logprobs_without_texts(backend: FakeBackend) -> None:
    def body(s: State) -> None:
        s += rm.gen("x", return_logprob=True)
        s += rm.gen("y", return_logprob=True, return_text_in_logprobs=False)

    state = run(body)
    assert state.meta("x")["output_token_logprobs"][0] == (-1.0, ord("["), "[")
    assert state.meta("y")["output_token_logprobs"][0] == (-1.0, ord("["), None)


def failing(prompt: str, *_: Any) -> str:
    if "bad" in prompt:
        raise rm.ContextOverflow("too long by 3")
    return "ok"


def test_a_failed_call_reaches_its_reader_and_can_be_handled(make_backend: MakeBackend) -> None:
    make_backend(failing)

    def body(s: State) -> None:
        fork = s.fork(2)
        fork += ["good", "bad"]
        fork += rm.gen("x")
        assert fork[0]["x"] == "ok"
        with pytest.raises(rm.ContextOverflow, match="by 3"):
            _ = fork[1]["x"]
        assert isinstance(fork[1].error(), rm.ContextOverflow)
        assert fork[0].error() is None
        s += rm.gen("y")

    assert run(body)["y"] == "ok"


def test_a_failed_call_that_nobody_reads_is_raised_by_the_run(make_backend: MakeBackend) -> None:
    make_backend(failing)
    for body in (
        lambda s: s.__iadd__("bad" + rm.gen("x") + "more" + rm.gen("y")),
        lambda s: s.fork(3).__iadd__(["a", "bad", "c"]).__iadd__(rm.gen("x")),
    ):
        with pytest.raises(rm.ContextOverflow, match="by 3"):
            run(body)


def test_sync_waits_and_raises(make_backend: MakeBackend) -> None:
    backend = make_backend(failing)

    def body(s: State) -> None:
        s += rm.gen("x")
        s.sync()
        assert backend.num_running == 0
        s += "bad" + rm.gen("y")
        with pytest.raises(rm.ContextOverflow):
            s.sync()

    run(body)


def test_streamed_chunks_join_to_the_text(make_backend: MakeBackend) -> None:
    make_backend(lambda prompt, *_: "" if prompt.endswith("?") else f"<{len(prompt)}>")

    @rm.function
    def program(s: State) -> None:
        s += "A"
        s += rm.gen("x", max_tokens=2)
        s += "B?" + rm.gen("none") + ""
        s += rm.gen("y", max_tokens=3) + "!"

    state = program.run(stream=True)
    chunks = list(state.text_iter())
    assert all(chunks)
    assert "".join(chunks) == state.text() == "A<1B?!"[:-1] + "!"
    assert list(state.text_iter("x")) == ["<1"]


def test_streams_of_text_and_of_one_variable(backend: FakeBackend) -> None:
    @rm.function
    def program(s: State) -> None:
        s += "A" + rm.gen("x", max_tokens=2) + "B" + rm.gen("y", max_tokens=3)

    backend.gate.clear()
    state = program.run(stream=True)
    both, only = state.text_iter(), state.text_iter("y")
    assert next(both) == "A"
    backend.gate.set()
    assert "".join(only) == state["y"] == "[4]"
    assert "A" + "".join(both) == state.text() == "A[1B[4]"
    assert len(list(state.text_iter())) == 4


def test_a_stream_delivers_what_was_produced_before_it_raises(make_backend: MakeBackend) -> None:
    make_backend()

    @rm.function
    def program(s: State) -> None:
        s += "a" + rm.gen("x")
        s.sync()
        raise KeyError("mine")

    state = program.run(stream=True)
    got = []
    with pytest.raises(KeyError, match="mine") as caught:
        got += [got.append(chunk) for chunk in state.text_iter()]
    assert "".join(chunk for chunk in got if chunk) == "a[1]"
    assert "raise KeyError" in str(caught.traceback[-1].statement)
    assert state["x"] == "[1]"
    for read in (lambda: state["later"], state.text, state.sync, state.messages):
        with pytest.raises(KeyError, match="mine"):
            read()
    assert isinstance(state.error(), KeyError)


def test_closing_a_stream_aborts_the_run(backend: FakeBackend) -> None:
    @rm.function
    def program(s: State) -> None:
        s += "a" + rm.gen("x")
        fork = s.fork(3)
        fork += rm.gen("z")
        s += rm.gen("y")
        _ = s["y"]

    backend.gate.clear()
    state = program.run(stream=True)
    stream = state.text_iter()
    assert next(stream) == "a"
    stream.close()  # type: ignore[attr-defined]
    with pytest.raises(rm.Cancelled, match="stream was closed"):
        _ = state["x"]
    assert isinstance(state.error(), rm.Cancelled)


def test_an_abandoned_stream_aborts_the_run(backend: FakeBackend) -> None:
    @rm.function
    def program(s: State) -> None:
        s += "a" + rm.gen("x")

    backend.gate.clear()
    state = program.run(stream=True)
    for chunk in state.text_iter():
        assert chunk == "a"
        break
    with pytest.raises(rm.Cancelled):
        state.text()


def test_a_reader_waits_for_what_a_streamed_body_writes_later(backend: FakeBackend) -> None:
    go = threading.Event()

    @rm.function
    def program(s: State) -> None:
        assert go.wait(10)
        s += rm.gen("x")
        s["last"] = 7

    state = program.run(stream=True)
    threading.Timer(0.02, go.set).start()
    assert state["last"] == 7
    assert "x" in state
    assert "never" not in state
    with pytest.raises(rm.ProgramError, match="'never'"):
        _ = state["never"]


def test_cancel_ends_a_program_and_a_branch(backend: FakeBackend) -> None:
    def pruned(s: State) -> None:
        fork = s.fork(2)
        backend.gate.clear()
        fork += rm.gen("x")
        fork[0].cancel()
        backend.gate.set()
        assert fork[1]["x"] == "[0]"
        with pytest.raises(rm.ProgramError, match="was cancelled"):
            fork[0].__iadd__("more")
        with pytest.raises(rm.Cancelled):
            _ = fork[0]["x"]

    assert run(pruned).error() is None

    def whole(s: State) -> None:
        backend.gate.clear()
        s += rm.gen("x")
        s.cancel()
        _ = s["x"]

    with pytest.raises(rm.Cancelled, match="whole: cancelled"):
        run(whole)
    backend.gate.set()


def test_copy_is_a_fork_of_one_for_a_while(backend: FakeBackend) -> None:
    def body(s: State) -> None:
        s += "abc"
        with s.copy() as c:
            c += "d" + rm.gen("x")
        assert s["x"] == ["[4]"]
        with pytest.raises(ZeroDivisionError), s.copy() as c:
            _ = 1 // 0
        with pytest.raises(rm.ProgramError):
            c += "after"

    assert run(body).text() == "abc"


def test_a_state_shows_itself(backend: FakeBackend) -> None:
    state = run(lambda s: s.__iadd__(rm.gen("x")))
    assert "variables: x" in repr(state)
