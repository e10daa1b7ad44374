from __future__ import annotations

import pytest
from chat_templates import GEMMA, LLAMA_2, LLAMA_3, MISTRAL, MISTRAL_LAST, QWEN_2, QWEN_3
from fake_backend import FakeTokenizer

from ramet.lang.chat import ChatPieces, common_prefix
from ramet.lang.errors import ProgramError
from ramet.runtime.chat_template import CHATML

U, A, S = "user", "assistant", "system"


def pieces(template: str, bos: str = "<s>") -> tuple[FakeTokenizer, ChatPieces]:
    tokenizer = FakeTokenizer(template, bos)
    return tokenizer, ChatPieces(tokenizer)  # type: ignore[arg-type]


def test_chatml() -> None:
    _tokenizer, chat = pieces(CHATML)
    assert chat.opening((), U).literal == "<|im_start|>user\n"
    assert chat.closing((U,)) == "<|im_end|>\n"
    opening = chat.opening((U,), A)
    assert opening.literal == opening.generation == "<|im_start|>assistant\n"
    assert chat.trim((), U).left == chat.trim((), U).right == ""


def test_a_default_system_prompt_belongs_to_the_first_message_only() -> None:
    _tokenizer, chat = pieces(QWEN_2)
    assert chat.opening((), U).literal.startswith("<|im_start|>system\nYou are helpful.")
    assert chat.opening((), S).literal == "<|im_start|>system\n"
    assert chat.opening((S,), U).literal == "<|im_start|>user\n"
    assert chat.opening((U, A), U).literal == "<|im_start|>user\n"


def test_llama_2_puts_the_system_message_into_the_users() -> None:
    _tokenizer, chat = pieces(LLAMA_2)
    assert chat.opening((), S).literal == "<s>[INST] <<SYS>>\n"
    assert chat.closing((S,)) + chat.opening((S,), U).literal == "\n<</SYS>>\n\n"
    assert chat.closing((S, U)) == " [/INST]"
    assert chat.opening((S, U), A).literal == " "
    assert chat.opening((S, U), A).generation == ""
    assert chat.closing((S, U, A)) == " </s>"
    assert chat.opening((S, U, A), U).literal == "<s>[INST] "
    with pytest.raises(ProgramError, match="must alternate"):
        chat.opening((U,), U)


def test_llama_3_trims() -> None:
    _tokenizer, chat = pieces(LLAMA_3)
    assert chat.trim((), U).left == chat.trim((U,), A).right == " \t\n\r\f\v"
    assert chat.closing((U,)) == "<|eot_id|>"
    assert chat.opening((), U).literal == "<s><|start_header_id|>user<|end_header_id|>\n\n"


def test_a_refused_role_raises_the_templates_words() -> None:
    _tokenizer, chat = pieces(GEMMA)
    with pytest.raises(ProgramError, match="System role not supported"):
        chat.opening((), S)
    assert chat.opening((U,), A).generation == "<start_of_turn>model\n"
    _tokenizer, chat = pieces(MISTRAL)
    with pytest.raises(ProgramError, match="roles must alternate"):
        chat.opening((), A)


def test_an_empty_thought_of_the_last_message_is_not_part_of_the_opening() -> None:
    _tokenizer, chat = pieces(QWEN_3)
    opening = chat.opening((U,), A)
    assert opening.literal == opening.generation == "<|im_start|>assistant\n"
    with pytest.warns(UserWarning, match="thinking") as caught:
        chat.warn_if_rewriting()
    chat.warn_if_rewriting()
    assert len(caught) == 1


@pytest.mark.filterwarnings("error")
def test_templates_that_keep_earlier_turns_give_no_warning() -> None:
    _tokenizer, chat = pieces(CHATML)
    chat.warn_if_rewriting()
    _tokenizer, chat = pieces(MISTRAL)
    chat.warn_if_rewriting()
    assert not chat._warned


def test_a_system_message_that_moves_to_the_last_turn_stays_where_it_was() -> None:
    _tokenizer, chat = pieces(MISTRAL_LAST)
    assert chat.opening((), S).literal == "<s>[INST] "
    with pytest.warns(UserWarning, match="moves the system message"):
        assert chat.closing((S, U, A)) + chat.opening((S, U, A), U).literal == "</s>[INST] "


def test_a_template_without_stable_pieces_is_refused() -> None:
    _tokenizer, chat = pieces("{{ messages | length }}")
    with pytest.raises(ProgramError, match="no stable text"):
        chat.opening((), U)


def test_each_kind_of_position_is_derived_once() -> None:
    tokenizer, chat = pieces(LLAMA_3)

    def talk(rounds: int) -> None:
        history: tuple[str, ...] = ()
        for _ in range(rounds):
            for role in (U, A):
                chat.opening(history, role)
                chat.trim(history, role)
                history += (role,)
                chat.closing(history)

    talk(4)
    before = tokenizer.num_renders
    talk(40)
    assert tokenizer.num_renders == before


def test_without_a_generation_prompt_the_assistant_header_still_opens_it() -> None:
    bare = "{% for m in messages %}<{{ m['role'] }}>\n{{ m['content'] }}</>\n{% endfor %}"
    _tokenizer, chat = pieces(bare)
    assert chat.opening((U,), A).generation == "<assistant>\n"


def test_common_prefix() -> None:
    assert common_prefix(["abc", "abd", "ab"]) == "ab"
    assert common_prefix(["abc"]) == "abc"
    assert common_prefix(["x", "y"]) == common_prefix([]) == ""
