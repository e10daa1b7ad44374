"""Retrieval-augmented generation: find a text, answer from it, check, else try the next one.

    ramet run programs/rag_pipeline.py
    python programs/rag_pipeline.py --question "Where can I buy honey?"

(Lewis et al. 2020, arXiv:2005.11401.) The index only compares words, so its first hit may be wrong:
a check notices, and the next one is tried. All questions run as one batch, at their own pace.
"""

from __future__ import annotations

import argparse
import math
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import ramet.lang as rm

DATA = Path(__file__).parent / "data"
EXAMPLES = (DATA / "qa_examples.txt").read_text(encoding="utf-8")
QUESTIONS = [
    "Who is the mayor of Velden?",
    "Where can I buy honey?",
    "How often do trains leave?",
    "How tall is the church tower?",
]


def words(text: str) -> Counter[str]:
    return Counter(re.findall(r"\w+", text.lower()))


def search(passages: Sequence[str], query: str) -> list[str]:
    """The passages, the best first: a word counts more the rarer it is (BM25, Robertson 1994)."""
    bags = [words(passage) for passage in passages]
    mean = sum(bag.total() for bag in bags) / len(bags)

    def weight(word: str, bag: Counter[str]) -> float:
        having = 0.5 + sum(word in other for other in bags)
        rarity = math.log(1 + (len(bags) + 1 - having) / having)
        return rarity * 2.5 * bag[word] / (bag[word] + 1.5 * (0.25 + 0.75 * bag.total() / mean))

    scores = [-sum(weight(word, bag) for word in words(query)) for bag in bags]
    return [passages[i] for i in sorted(range(len(bags)), key=scores.__getitem__)]


@rm.function
def answer(s: rm.ProgramState, passages: list[str], question: str, tries: int, fit: float) -> None:
    """Sets `answer`, None if nothing fits, and `log`: (passage, fit, answer, verdict) per try."""
    s += EXAMPLES
    s["answer"], s["log"] = None, []
    for passage in search(passages, question)[:tries]:
        with s.copy() as attempt:  # A fork: a try that failed leaves no trace in the text.
            # A `select` of one choice says how likely it is: the question, after this passage.
            # Small models judge better by that than by a yes or no (Sachan et al. 2022).
            attempt += f"Text: {passage}\nQuestion:" + rm.select("asked", [" " + question])
            attempt += "\nAnswer:" + rm.gen("reply", stop="\n", max_tokens=24, temperature=0)
            score, reply = attempt.meta("asked")["scores"][0], attempt["reply"].strip()
        # Two checks: does the question fit the passage, and are the answer's words from it?
        grounded = all(word in words(passage + " a at in of on the") for word in words(reply))
        verdict = "unfit" if score < fit else "fine" if grounded else "invented"
        s["log"].append((passage, score, reply, verdict))
        if verdict == "fine":
            s["answer"] = reply
            break


def main(argv: Sequence[str] | None = None) -> None:
    """Answer the questions and print what was tried."""
    parser = argparse.ArgumentParser(description="Answer questions from a file of passages.")
    parser.add_argument("--file", type=Path, default=DATA / "town.txt", help="a passage per line")
    parser.add_argument("--question", action="append", metavar="TEXT", help="may be repeated")
    parser.add_argument("--tries", type=int, default=6, metavar="N", help="passages at most (6)")
    parser.add_argument("--fit", type=float, default=-2.5, help="least log-probability (-2.5)")
    options = parser.parse_args(argv)
    passages = options.file.read_text(encoding="utf-8").splitlines()
    # `bind` sets what all runs have in common.
    program = answer.bind(passages=passages, tries=options.tries, fit=options.fit)
    items = [{"question": question} for question in options.question or QUESTIONS]
    for item, state in zip(items, program.run_batch(items), strict=True):
        print(f"{item['question']}\n  => {state['answer'] or 'not found'}")
        for passage, score, reply, verdict in state["log"]:
            print(f"     {score:5.2f} {verdict:8}  {passage[:40]}...  {reply}")


if __name__ == "__main__":
    main()
