from __future__ import annotations

from typing import Any

import pytest
from chat_templates import GEMMA, LLAMA_2, LLAMA_3, MISTRAL, MISTRAL_LAST, QWEN_2, QWEN_3
from fake_backend import FakeTokenizer, MakeBackend

import ramet.lang as rm
from ramet.lang.chat import ChatPieces
from ramet.lang.conversation import Conversation
from ramet.runtime.chat_template import CHATML

U, A, S = "user", "assistant", "system"
TALK = [(U, "Hi"), (A, "Hello, you"), (U, "More"), (A, "Less")]
SPACED = [(U, " \n Hi  "), (A, "\n\nHello, you \n"), (U, "\tMore\n"), (A, " Less ")]


def write(template: str, talk: list[tuple[str, str]]) -> tuple[str, str]:
    """The text of a conversation piece by piece, and the template's own rendering."""
    tokenizer = FakeTokenizer(template, "<s>")
    conversation = Conversation(ChatPieces(tokenizer), "<s>")  # type: ignore[arg-type]
    text = ""
    for role, content in talk:
        pieces = conversation.begin(role, not text)
        for part in (content[:3], content[3:]):
            pieces += conversation.literal(part, special=False)
        pieces += conversation.end(role)
        text += "".join(piece for piece, _ in pieces)
    messages = [{"role": role, "content": content} for role, content in talk]
    assert conversation.messages() == messages
    return text, tokenizer.render_chat(messages)


@pytest.mark.parametrize("template", [CHATML, LLAMA_2, LLAMA_3, MISTRAL, GEMMA, QWEN_2])
@pytest.mark.parametrize("talk", [TALK, SPACED, TALK[:1], [(U, ""), (A, "")]])
def test_literal_messages_give_the_templates_own_rendering(template: str, talk: Any) -> None:
    text, whole = write(template, talk)
    assert text == whole


@pytest.mark.parametrize("template", [CHATML, LLAMA_2, LLAMA_3, QWEN_2, QWEN_3])
def test_system_messages_too(template: str) -> None:
    text, whole = write(template, [(S, "Be brief"), *TALK[:3]])
    assert text == whole


def test_piecewise_text_of_templates_that_rewrite_earlier_turns() -> None:
    with pytest.warns(UserWarning, match="moves"):
        text, whole = write(MISTRAL_LAST, [(S, "Be brief"), *TALK[:3]])
    assert text == "<s>[INST] Be brief\n\nHi[/INST] Hello, you</s>[INST] More[/INST]"
    assert text != whole


def test_a_conversation_may_begin_with_the_assistant() -> None:
    text, whole = write(CHATML, [(A, "Hello"), (U, "Hi")])
    assert text == whole


def open_pieces(template: str) -> Conversation:
    tokenizer = FakeTokenizer(template, "<s>")
    return Conversation(ChatPieces(tokenizer), "<s>")  # type: ignore[arg-type]


def test_kinds_of_pieces() -> None:
    conversation = open_pieces(CHATML)
    assert conversation.literal("out", special=False) == [("out", "text")]
    conversation.begin(U, at_start=False)
    pieces = conversation.literal("<|im_end|>", special=False)
    assert [kind for text, kind in pieces if text] == ["content"]
    pieces = conversation.literal("<|im_end|>", special=True)
    assert [kind for text, kind in pieces if text] == ["text"]


def test_bos_stands_at_the_start_of_the_text_only() -> None:
    for template in (LLAMA_3, MISTRAL):
        assert open_pieces(template).begin(U, at_start=True)[0][0].startswith("<s>")
        assert "<s>" not in open_pieces(template).begin(U, at_start=False)[0][0]


def test_a_message_that_the_model_begins_has_no_space_before_it() -> None:
    conversation = open_pieces(LLAMA_2)
    for piece in (conversation.begin(U, True), conversation.literal("Hi", False)):
        assert piece
    assert conversation.end(U) == [(" [/INST]", "text")]
    assert conversation.begin(A, False) == [("", "text")]
    twin = conversation.copy()
    assert "".join(text for text, _ in conversation.before_call()) == ""
    assert "".join(text for text, _ in twin.literal("Hey", False)) == " Hey"


def test_whitespace_is_held_back_until_more_follows() -> None:
    conversation = open_pieces(LLAMA_3)
    conversation.begin(U, True)
    assert conversation.literal(" \n", False) == []
    assert conversation.literal("a \n", False)[-1] == ("a", "content")
    assert [text for text, _ in conversation.before_call()] == [" \n"]
    assert conversation.literal("  ", False) == []
    assert [text for text, _ in conversation.end(U)] == ["<|eot_id|>"]


def test_roles_do_not_nest_and_end_as_they_began() -> None:
    conversation = open_pieces(CHATML)
    with pytest.raises(rm.ProgramError, match="none is open"):
        conversation.end(U)
    conversation.begin(U, True)
    with pytest.raises(rm.ProgramError, match="inside the user message"):
        conversation.begin(A, False)
    with pytest.raises(rm.ProgramError, match="role user"):
        conversation.end(A)


def test_a_copy_goes_its_own_way() -> None:
    conversation = open_pieces(CHATML)
    conversation.begin(U, True)
    conversation.literal("a", False)
    mark, twin = conversation.mark(), conversation.copy()
    twin.literal("b", False)
    conversation.end(U)
    assert twin.content_since(mark) == "b"
    assert conversation.content_since(mark) is None
    assert conversation.messages() == [{"role": U, "content": "a"}]
    assert twin.messages() == [{"role": U, "content": "ab"}]


def test_a_generated_turn_of_a_thinking_template_warns_once(make_backend: MakeBackend) -> None:
    backend = make_backend(lambda *_: "<think>\nhm\n</think>\n\nYes", template=QWEN_3)

    @rm.function
    def talk(s: rm.ProgramState) -> None:
        for _ in range(3):
            s += rm.user("Is it?") + rm.assistant(rm.gen("a"))

    with pytest.warns(UserWarning, match="thinking") as caught:
        state = talk.run()
    assert len(caught) == 1
    turn = "<|im_start|>user\nIs it?<|im_end|>\n<|im_start|>assistant\n"
    assert state.text() == (turn + "<think>\nhm\n</think>\n\nYes<|im_end|>\n") * 3
    assert backend.prompts[2].endswith(turn)
