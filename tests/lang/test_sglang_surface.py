"""SGLang's names, keywords and ways to read a program, one by one."""

from __future__ import annotations

import asyncio
import inspect

import pytest
from tiny_programs import at_rest, runtime

import ramet.lang as sgl

__all__ = ["at_rest", "runtime"]
pytestmark = pytest.mark.timeout(120)


@sgl.function
def text_qa(s, question):
    s += "Q: " + question + "\n"
    s += "A:" + sgl.gen("answer", stop="\n", max_tokens=24, ignore_eos=True)


@sgl.function
def two_turns(s, question_1, question_2):
    s += sgl.user(question_1)
    s += sgl.assistant(sgl.gen("answer_1", max_tokens=8, ignore_eos=True))
    s += sgl.user(question_2)
    s += sgl.assistant(sgl.gen("answer_2", max_tokens=24, ignore_eos=True))


TURNS = {"question_1": "Name a river.", "question_2": "Name two lakes."}


def test_a_batch_with_a_progress_bar(capsys):
    questions = ["What is a lake?", "What is a river?", "What is a sea?"]
    states = text_qa.run_batch([{"question": q} for q in questions], progress_bar=True)
    assert [q in s.text() for q, s in zip(questions, states, strict=True)] == [True] * 3
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "3/3" in captured.err


def test_batches_of_tuples_and_of_nothing():
    states = text_qa.run_batch([("What is a lake?",), ["What is a sea?"]], num_threads=64)
    assert ["lake" in states[0].text(), "sea" in states[1].text()] == [True, True]
    assert text_qa.run_batch([]) == []
    styled = text_qa.run_batch([{"question": "a"}, {"question": "b"}], generator_style=True)
    assert [state.text()[:4] for state in styled] == ["Q: a", "Q: b"]


def test_a_stream_of_the_whole_text():
    state = text_qa.run(question="What is a lake?", temperature=0.1, stream=True)
    chunks = list(state.text_iter())
    assert "".join(chunks) == state.text()
    assert all(chunks)
    assert len(chunks) > 2


def test_a_stream_of_a_variable_in_any_order():
    state = two_turns.run(**TURNS, stream=True)
    second = "".join(state.text_iter("answer_2"))
    first = "".join(state.text_iter("answer_1"))
    assert [first, second] == [state["answer_1"], state["answer_2"]]


def test_a_stream_by_keyword():
    state = two_turns.run(**TURNS, stream=True)
    assert "".join(state.text_iter(var_name="answer_2")) == state["answer_2"]


def test_a_run_without_a_stream_can_be_iterated_too():
    state = text_qa.run(question="What is a lake?")
    assert "".join(state.text_iter()) == state.text()
    assert "".join(state.text_iter("answer")) == state["answer"]


@pytest.mark.parametrize("by_keyword", [False, True])
def test_an_asynchronous_stream(by_keyword):
    async def collect():
        state = two_turns.run(**TURNS, stream=True)
        read = (
            state.text_async_iter(var_name="answer_2")
            if by_keyword
            else state.text_async_iter("answer_2")
        )
        second = [chunk async for chunk in read]
        whole = [chunk async for chunk in state.text_async_iter()]
        return state, second, whole

    state, second, whole = asyncio.run(collect())
    assert "".join(second) == state["answer_2"]
    assert "".join(whole) == state.text()
    assert all(second)
    assert all(whole)


@pytest.mark.parametrize("stop", [None, "e"])
def test_an_asynchronous_stream_with_the_logprobs_of_each_chunk(stop):
    @sgl.function
    def program(s):
        s += "Go: " + sgl.gen(
            "x", max_tokens=32, ignore_eos=True, stop=stop, return_logprob=True, top_logprobs_num=2
        )

    async def collect():
        state = program.run(stream=True, seed=5)
        pairs = [pair async for pair in state.text_async_iter("x", return_meta_data=True)]
        return state, pairs

    state, pairs = asyncio.run(collect())
    assert "".join(text for text, _ in pairs) == state["x"]
    assert all(text for text, _ in pairs)
    total = 0
    entries = []
    for _, meta in pairs:
        entries += meta["output_token_logprobs"]
        total += len(meta["output_token_logprobs"])
        assert meta["output_token_logprobs_length"] == total
        assert meta["completion_tokens"] == total
    # Tokens that never showed as text (a stop's, an incomplete character's) have no chunk.
    final = state.get_meta_info("x")["output_token_logprobs"]
    assert entries == final[: len(entries)]
    if stop is None:
        assert len(final) - len(entries) < 4


def test_variables_are_read_and_set_by_name():
    @sgl.function
    def program(s, topic):
        s += topic + sgl.gen("x", max_tokens=4)
        s.set_var("topic", topic)
        s["length"] = len(s.get_var("x"))
        return s["length"] + 1

    state = program("a lake", temperature=0)
    assert state.get_var("topic") == state["topic"] == "a lake"
    assert state.ret_value == state["length"] + 1
    state.set_var("later", [1])
    assert state["later"] == [1]
    assert state.error() is None
    state.sync()


def test_a_bound_argument_and_a_trace():
    bound = text_qa.bind(question="What is a lake?")
    assert bound.run().text().startswith("Q: What is a lake?\n")
    assert text_qa.trace() is not None
    assert bound.trace() is not None


def test_rules_of_a_selection_by_name():
    @sgl.function
    def program(s, method):
        s += "The colour of the sky is " + sgl.gen(
            "colour", choices=["blue", "green", "red"], choices_method=method
        )

    methods = [
        sgl.token_length_normalized,
        sgl.greedy_token_selection,
        sgl.unconditional_likelihood_normalized,
    ]
    for method in methods:
        state = program.run(method=method)
        assert state["colour"] in ("blue", "green", "red")
        assert len(state.get_meta_info("colour")["choices"]) == 3
    assert program.run(method=None)["colour"] in ("blue", "green", "red")


def test_sampling_arguments_of_a_run_are_inherited():
    @sgl.function
    def program(s):
        s += "a" + sgl.gen("short") + "b" + sgl.gen("long", max_tokens=9)

    state = program.run(
        max_new_tokens=3,
        stop=[],
        stop_token_ids=[],
        temperature=0.5,
        top_p=0.9,
        top_k=20,
        min_p=0.0,
        frequency_penalty=0.1,
        presence_penalty=0.1,
        ignore_eos=True,
        return_logprob=True,
    )
    lengths = [state.get_meta_info(name)["completion_tokens"] for name in ("short", "long")]
    assert lengths == [3, 9]
    assert len(state.get_meta_info("short")["output_token_logprobs"]) == 3


def test_speculation_is_for_endpoints(runtime):
    @sgl.function(num_api_spec_tokens=64)
    def spec(s):
        s += "Name:" + sgl.gen("name", stop="\n") + "\nBorn:" + sgl.gen("birthday", stop="\n")

    assert isinstance(spec, sgl.Function)
    assert "num_api_spec_tokens" in inspect.signature(sgl.function).parameters
    with pytest.raises(sgl.UnsupportedFeature, match="num_api_spec_tokens"):
        spec.run()


def test_the_cache_and_the_server():
    text_qa.run(question="What is a lake?")
    sgl.flush_cache()
    info = sgl.get_server_info()
    assert info["cached_pool_tokens"] == 0
    assert info["calls"] >= 1


def test_settings_of_sglang_may_be_set():
    sgl.global_config.verbosity = 0
    sgl.global_config.enable_precache_with_tracing = False
    sgl.global_config.enable_parallel_encoding = False
    assert text_qa.run(question="What is a lake?")["answer"] is not None


def test_reasoning_is_separated_from_the_answer():
    @sgl.function
    def basic_qa(s, question):
        s += sgl.user(question)
        s += sgl.assistant_begin()
        s += sgl.separate_reasoning(sgl.gen("answer", max_tokens=12), model_type="qwen3")
        s += sgl.assistant_end()

    state = basic_qa("Name three lakes.")
    assert isinstance(state["answer"], str)
    assert state["answer_reasoning_content"] is not None


def test_what_no_model_of_ours_can_see_is_refused():
    @sgl.function
    def image_qa(s, image_file, question):
        s += sgl.user(sgl.image(image_file) + question)
        s += sgl.assistant(sgl.gen("answer", max_tokens=8))

    with pytest.raises(sgl.UnsupportedFeature, match="image"):
        image_qa("lake.png", "What is in the image?")


def test_none_cannot_be_appended():
    @sgl.function
    def program(s):
        s += None

    with pytest.raises(sgl.InvalidArgument, match="None"):
        program.run()


def test_a_models_path_by_sglangs_name():
    with sgl.Runtime(model_path="tiny", pool_tokens=1024) as runtime:
        assert runtime.info["model"] == "tiny"


def test_the_second_argument_of_typed_calls_is_the_limit():
    for typed in (sgl.gen_int, sgl.gen_string):
        assert list(inspect.signature(typed).parameters)[:2] == ["name", "max_tokens"]


def test_logprobs_of_choices_by_sglangs_name():
    @sgl.function
    def tool_use(s, question):
        s += question + ", for that I need a " + sgl.gen("tool", choices=["map", "long rope"])

    meta_info = tool_use.run("How far is it?").get_meta_info("tool")
    choices = [choice["logprobs"] for choice in meta_info["choices"]]
    entries = meta_info["input_token_logprobs"]
    assert [[entry[0] for entry in entries[i]] for i in range(2)] == choices


def test_the_default_backend_by_sglangs_name(runtime):
    assert sgl.global_config.default_backend is runtime


def test_a_state_prints_as_its_text():
    assert str(text_qa.run(question="Why?")).startswith("ProgramState(Q: Why?\nA:")
