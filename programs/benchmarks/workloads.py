"""The workloads, made of the small texts in `programs/data`; each round's are new to every cache.

`build(name, round, quick)` is their only door. A round's number is the first thing in each text, so
that nothing is left of the round before, in whatever cache a system has.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.calls import READ, Names, Steps, Workload, fork, text

DATA = Path(__file__).resolve().parent.parent / "data"


def read(name: str) -> str:
    """A text of `programs/data`."""
    return (DATA / name).read_text(encoding="utf-8").strip() + "\n\n"


def facts() -> list[str]:
    """One-line statements, all different."""
    animals = list(json.loads(read("animals.json")).values())
    sentences = re.split(r"(?<=\.)\s+", read("lighthouse.txt") + read("stories.txt"))
    return [*animals, *read("town.txt").split("\n"), *read("village.txt").split("\n"), *sentences]


FACTS = [fact for fact in facts() if len(fact) > 20]
PLACES = ("town.txt", "lighthouse.txt", "village.txt", "stories.txt", "qa_examples.txt")
QUESTIONS = [one["question"] for one in json.loads(read("quiz.json"))]


def few_shot(start: str, quick: bool) -> list[Steps]:
    """64 questions over one beginning of 1139 tokens, 32 new tokens each."""
    examples = "".join(read(name) for name in PLACES)[: 1400 if quick else 4476]
    programs = []
    for number in range(8 if quick else 64):
        question = f"{QUESTIONS[number % 20]} ({FACTS[number % len(FACTS)][:24]})"
        asked = text(f"\nQuestion {number}: {question}\nAnswer:")
        programs.append([text(start + examples), asked, Names().gen(8 if quick else 32)])
    return programs


def react(start: str, quick: bool) -> list[Steps]:
    """16 agents that think, act and are shown observations, three rounds each (a trace)."""
    programs = []
    examples = start + read("react_examples.txt")[: 600 if quick else None]
    for number in range(4 if quick else 16):
        names = Names()
        steps = [text(f"{examples}\nQuestion: {QUESTIONS[number]}\n")]
        for turn in range(2 if quick else 3):
            seen = FACTS[(3 * number + turn) % len(FACTS)]
            steps += [text("Thought:"), names.gen(4 if quick else 20), text("\nAction:")]
            steps += [names.gen(4 if quick else 10), READ, text(f"\nObservation: {seen}\n")]
        programs.append([*steps, text("Thought:"), names.gen(4 if quick else 20)])
    return programs


MOODS = [" happy", " sad", " tired", " angry"]


def tree_of_thought(start: str, quick: bool) -> list[Steps]:
    """Four trees: at each level 4 sentences at temperature 0.8, each judged; 2 of them go on."""
    depth, proposals, keep, tokens = (2, 3, 1, 8) if quick else (3, 4, 2, 24)

    def level(names: Names, left: int) -> list[Any]:
        if not left:
            return []
        branches = []
        for place in range(proposals):
            verdict = [text(" In the end, everyone was very"), names.select(MOODS), READ]
            branch = [names.gen(tokens, temperature=0.8), fork(verdict)]
            branches.append([*branch, *(level(names, left - 1) if place < keep else [])])
        return [fork(*branches)]

    programs = []
    for number in range(1 if quick else 4):
        beginning = text(f"{start}{read('stories.txt')}{FACTS[number]}")
        programs.append([beginning, *level(Names(), depth)])
    return programs


def skeleton(start: str, quick: bool) -> list[Steps]:
    """Eight answers: an outline, then 4 points side by side, joined."""
    tokens, points = (6, 3) if quick else (32, 4)
    examples, programs = start + read("skeleton_examples.txt"), []
    for number in range(2 if quick else 8):
        names = Names()
        asked = text(f"{examples}Question: {QUESTIONS[number]}\nOutline:\n1.")
        outline = [asked, names.gen(tokens)]
        branches = [
            [text(f"\n\n{point}. Point {point}:"), names.gen(tokens)]
            for point in range(1, points + 1)
        ]
        end = [text("\n\nIn short:"), names.gen(tokens)]
        programs.append([*outline, READ, fork(*branches, append=True), *end])
    return programs


MARKS = [" 1", " 2", " 3", " 4", " 5"]
CRITERIA = ("clear", "true", "kind", "short")


def judge(start: str, quick: bool) -> list[Steps]:
    """Eight texts, each judged by 4 criteria side by side: a comment of 24 tokens and a mark."""
    programs, tokens = [], 6 if quick else 24
    for number in range(2 if quick else 8):
        names = Names()
        length = 4 if quick else 16
        essay = " ".join(FACTS[(number * 5 + place) % len(FACTS)] for place in range(length))
        mark = text("\nMark (1 to 5):")
        branches = [
            [text(f"\n\nIs it {what}?"), names.gen(tokens), mark, names.select(MARKS)]
            for what in CRITERIA
        ]
        programs.append([text(f"{start}Text {number}: {essay}"), fork(*branches)])
    return programs


WORD = {"type": "string", "maxLength": 24}
NOTICE = {
    "type": "object",
    "properties": {
        "kind": {"enum": ["lost", "found", "sale", "wanted"]},
        "what": WORD,
        "coins": {"type": "integer", "minimum": 0, "maximum": 999},
        "phone": {"type": "string", "pattern": "^555-[0-9]{4}$"},
    },
    "required": ["kind", "what", "coins", "phone"],
    "additionalProperties": False,
}


def json_record(start: str, quick: bool) -> list[Steps]:
    """24 notices read into JSON records of one schema."""
    examples = start + read("notice_examples.txt").replace("null", "0").replace(
        ":0}", ':"555-0000"}'
    )
    lines = read("notices.txt").strip().split("\n")
    return [
        [
            text(f"{examples}Notice: No. {number}. {lines[number % len(lines)]}\nRecord:"),
            Names().gen(80, schema=NOTICE),
        ]
        for number in range(4 if quick else 24)
    ]


def chat(chats: int, turns: int, tokens: int) -> Callable[[str, str], list[Steps]]:
    """So many chats."""

    def build(start: str, system: str) -> list[Steps]:
        programs = []
        for number in range(chats):
            names = Names()
            steps = [text(f"<|im_start|>system\n{start}{system}<|im_end|>\n")]
            for turn in range(turns):
                about = " ".join(FACTS[(7 * number + 3 * turn + i) % len(FACTS)] for i in range(3))
                asked = f"<|im_start|>user\n{about} {QUESTIONS[(number + turn) % 20]}<|im_end|>\n"
                steps += [text(asked + "<|im_start|>assistant\n"), names.gen(tokens), READ]
                steps.append(text("<|im_end|>\n"))
            programs.append(steps)
        return programs

    return build


def chat_short(start: str, quick: bool) -> list[Steps]:
    """Eight chats of 4 turns with answers of 8 tokens."""
    return chat(*((3, 2, 4) if quick else (8, 4, 8)))(start, "You answer in one word.")


def chat_long(start: str, quick: bool) -> list[Steps]:
    """Eight chats of 4 turns with answers of 96 tokens."""
    return chat(*((3, 2, 12) if quick else (8, 4, 96)))(start, "You explain everything at length.")


def select(start: str, quick: bool) -> list[Steps]:
    """20 questions with 4 options each after 20 examples; nothing is generated."""
    quiz = json.loads(read("quiz.json"))
    animals = json.loads(read("animals.json"))
    kinds = list(animals)
    shots = "".join(f"Question: {q['question']}\nAnswer: {q['answer']}\n\n" for q in quiz)
    programs = []
    for number in range(8 if quick else 20):
        place = number % len(kinds)
        sentences = re.split(r"(?<=\.)\s+", animals[kinds[place]])
        clue = sentences[number // len(kinds) % len(sentences)].replace(f"The {kinds[place]}", "It")
        choices = [" the " + kinds[(place + 3 * other) % len(kinds)] for other in range(4)]
        question = f"Question: Which animal is it? {clue}\nAnswer:"
        examples = shots[: 600 if quick else None]
        programs.append([text(start + examples + question), Names().select(choices)])
    return programs


def self_consistency(start: str, quick: bool) -> list[Steps]:
    """Four questions with 16 samples of 48 tokens each, at temperature 0.7."""
    examples = start + read("qa_examples.txt") + read("town.txt")
    samples, tokens = (4, 10) if quick else (16, 48)
    programs = []
    for question in QUESTIONS[: 1 if quick else 4]:
        asked = text(f"{examples}Question: {question}\nAnswer:")
        programs.append([asked, Names().gen(tokens, 0.7, samples)])
    return programs


def single_stream(start: str, quick: bool) -> list[Steps]:
    """One text of 256 tokens after a short beginning."""
    beginning = text(start + "A long story about a town by the river:\n")
    return [[beginning, Names().gen(24 if quick else 256)]]


def long_prompt(start: str, quick: bool) -> list[Steps]:
    """One prompt of 2,048 tokens and the first token after it."""
    long = read("lighthouse.txt") + read("precision.txt")
    return [[text(start + long[: 2400 if quick else 8006]), Names().gen(1)]]


def no_sharing(start: str, quick: bool) -> list[Steps]:
    """32 prompts of some 100 tokens that have nothing in common, 32 new tokens each."""
    programs = []
    for number in range(6 if quick else 32):
        about = " ".join(FACTS[(5 * number + i) % len(FACTS)] for i in range(2 if quick else 5))
        programs.append([text(f"{number} {start}{about}"), Names().gen(8 if quick else 32)])
    return programs


BUILDERS: dict[str, Callable[[str, bool], list[Steps]]] = {
    "few-shot": few_shot,
    "react": react,
    "tree-of-thought": tree_of_thought,
    "skeleton": skeleton,
    "judge": judge,
    "json": json_record,
    "chat-short": chat_short,
    "chat-long": chat_long,
    "select": select,
    "self-consistency": self_consistency,
    "single-stream": single_stream,
    "long-prompt": long_prompt,
    "no-sharing": no_sharing,
}
"""What there is, by name."""


def build(name: str, number: int, quick: bool) -> Workload:
    """The workload of one round; equal arguments give equal texts."""
    builder = BUILDERS[name]
    return Workload(name, (builder.__doc__ or "").strip(), builder(f"Round {number}. ", quick))


def warm_up() -> Workload:
    """A little of everything, before the first round."""
    names = Names()
    branches = [[text(f" {number}:"), names.gen(4, 0.8)] for number in range(8)]
    steps = [text(read("town.txt")), fork(*branches, append=True), names.gen(8)]
    return Workload(
        "warm-up",
        "a little of everything",
        [
            [*steps, names.select([" yes", " no"]), names.gen(80, schema=NOTICE)],
            [text(read("village.txt")), names.gen(16)],
        ],
    )
