"""Self-consistency: think several times, then vote (Wang et al. 2023, arXiv:2203.11171).

    ramet run programs/self_consistency.py
    python programs/self_consistency.py --chains 16 --seed 1 --question "..."

One state reads the question, forks into several chains that reason at a temperature, each chain
gives an answer, and the answer that most chains gave wins. A fork copies nothing: the chains share
what was computed before it, and run side by side.
"""

from __future__ import annotations

import argparse
import re
from collections import Counter
from collections.abc import Sequence

import ramet.lang as rm

QUESTION = "Mia has 11 pencils. She gives away 5 pencils. How many pencils does she have now?"

# Worked examples: they show the model to reason first and how to end. A model this small still
# gets many a chain wrong, which is what the vote is for.
EXAMPLES = """\
Question: Tom has 12 apples. He eats 3 apples. How many apples does he have now?
Reasoning: Tom starts with 12 apples. He eats 3, so 12 - 3 = 9 apples.
Answer: 9

Question: Ann has 5 books. She buys 4 books. How many books does she have now?
Reasoning: Ann starts with 5 books. She buys 4 more, so 5 + 4 = 9 books.
Answer: 9

Question: Ben has 20 coins. He loses 6 coins. How many coins does he have now?
Reasoning: Ben starts with 20 coins. He loses 6, so 20 - 6 = 14 coins.
Answer: 14

Question: Eva has 7 stamps. She finds 8 stamps. How many stamps does she have now?
Reasoning: Eva starts with 7 stamps. She finds 8 more, so 7 + 8 = 15 stamps.
Answer: 15

"""


@rm.function
def solve(s: rm.ProgramState, question: str, chains: int) -> None:
    """Reason in `chains` forks and vote; sets `votes`, a Counter of answers."""
    s += EXAMPLES + f"Question: {question}\nReasoning:"

    forks = s.fork(chains)
    # The same expression goes to every fork. Each has its own random stream, so each thinks its
    # own way; a seed for the run makes all of them repeatable.
    forks += rm.gen("reasoning", stop="\n", max_tokens=64, temperature=0.7)
    forks += "\nAnswer:" + rm.gen("answer", stop="\n", max_tokens=8, temperature=0)

    # Each variable of the forks becomes a list here. Nothing has been waited for yet: reading
    # the list is what waits.
    forks.join()
    numbers = [re.search(r"-?\d+", answer) for answer in s["answer"]]
    s["votes"] = Counter(number.group() for number in numbers if number)


def main(argv: Sequence[str] | None = None) -> None:
    """Solve one question and print the chains and the vote."""
    parser = argparse.ArgumentParser(description="Answer a question by a vote of reasoning chains.")
    parser.add_argument("--question", default=QUESTION, metavar="TEXT", help="what to solve")
    parser.add_argument("--chains", type=int, default=8, metavar="N", help="how many (8)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="repeatable chains (0)")
    options = parser.parse_args(argv)

    state = solve.run(question=options.question, chains=options.chains, seed=options.seed)
    print(options.question)
    pairs = zip(state["reasoning"], state["answer"], strict=True)
    for number, (reasoning, reply) in enumerate(pairs, 1):
        print(f"  {number}. {reasoning.strip()}  =>  {reply.strip()}")
    votes: Counter[str] = state["votes"]
    for reply, count in votes.most_common():
        print(f"{reply:>8}  {'#' * count} {count}")
    print(f"Answer: {votes.most_common(1)[0][0] if votes else 'none of the chains gave a number'}")


if __name__ == "__main__":
    main()
