"""A conversation of several turns, and what each turn costs.

    ramet run programs/multi_turn_chat.py
    python programs/multi_turn_chat.py --interactive --system "You are a pirate."

A chat server is sent the whole conversation again with every message. Here it is one state that
grows: what was said stays computed, and a turn costs what it adds. The roles write the model's own
chat template, so nothing here knows what a message of this model looks like.
"""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterable, Iterator, Sequence

import ramet.lang as rm

SYSTEM = "You are a friendly gardener. Answer in one short sentence."
MESSAGES = [
    "Hello! I have a small garden.",
    "What can I plant in it?",
    "How often should I water them?",
    "Thank you very much!",
]


@rm.function
def chat(s: rm.ProgramState, system: str, messages: Iterable[str], max_tokens: int) -> None:
    """Answer the messages one by one, printing each answer and its cost."""
    if system:
        s += rm.system(system)
    for message in messages:
        # What users type belongs in a role: there it never becomes a special token, so nobody
        # can end their own message and write in the assistant's name.
        s += rm.user(message)
        s += rm.assistant(rm.gen("reply", max_tokens=max_tokens))
        # The same name again: `s["reply"]` is the latest, `s.history("reply")` has them all.
        print(f"Assistant: {s['reply'].strip()}")
        # "cached" is what was there already: the last prompt and answer, but for the answer's last
        # token, which is only computed when something follows it.
        cost = s.meta("reply")
        print(
            f"[prompt: {cost['prompt_tokens']} tokens, {cost['cached_tokens']} of them cached; ",
            end="",
        )
        print(f"computed: {cost['computed_tokens']}; generated: {cost['completion_tokens']}]\n")


def scripted(messages: Sequence[str]) -> Iterator[str]:
    """The given messages, shown as if they were typed."""
    for message in messages:
        print(f"User:      {message}")
        yield message


def typed() -> Iterator[str]:
    """What is typed, until an empty line or the end of the input."""
    with contextlib.suppress(EOFError):
        while message := input("User:      ").strip():
            yield message


def main(argv: Sequence[str] | None = None) -> None:
    """Talk, and print what was said and what it cost."""
    parser = argparse.ArgumentParser(description="Chat, and see what each turn computes.")
    parser.add_argument("--message", action="append", metavar="TEXT", help="may be repeated")
    parser.add_argument("--interactive", action="store_true", help="type the messages")
    parser.add_argument("--system", default=SYSTEM, metavar="TEXT", help="the system prompt")
    parser.add_argument("--tokens", type=int, default=48, metavar="N", help="per answer (48)")
    parser.add_argument("--temperature", type=float, default=0.0, metavar="T", help="(0)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="repeatable answers (0)")
    options = parser.parse_args(argv)

    # The body reads the messages as it goes: it is ordinary Python and may wait for a person.
    chat.run(
        system=options.system,
        messages=typed() if options.interactive else scripted(options.message or MESSAGES),
        max_tokens=options.tokens,
        temperature=options.temperature,
        repetition_penalty=1.1,  # A small model likes to repeat itself.
        seed=options.seed,
    )


if __name__ == "__main__":
    main()
