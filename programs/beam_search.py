"""Beam search: follow the k likeliest texts (Lowerre 1976, "The HARPY speech recognition system").

    ramet run programs/beam_search.py
    python programs/beam_search.py --beams 8 --tokens 16 --prompt "The best thing about trains"

Each beam is a fork; all are asked for their likeliest next tokens, and the best k of all go on.
What is shared is computed once. Equals transformers' `generate(num_beams=k, do_sample=False)`.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import NamedTuple

import ramet.lang as rm

PROMPTS = ["The capital of France is", "The old gardener opened the gate and"]


class Beam(NamedTuple):
    score: (
        float  # Of a live beam the sum of its tokens' log-probabilities, of an ended one the mean.
    )
    ids: list[int]
    state: rm.ProgramState


@rm.function
def beam_search(s: rm.ProgramState, prompt: str, width: int, max_tokens: int) -> None:
    """Sets `beams`: up to `width` of (mean log-probability, token ids, text), the best first."""
    s += prompt
    live, ended = [Beam(0.0, [], s)], list[Beam]()
    for length in range(1, max_tokens + 1):
        # Ask all beams at once; in forks, as what a call generates enters its state.
        asked = [beam.state.fork()[0] for beam in live]
        for fork in asked:
            fork += rm.gen("next", max_tokens=1, return_logprob=True, top_logprobs_num=4 * width)
        candidates = [
            (beam.score + logprob, beam, token)
            for beam, fork in zip(live, asked, strict=True)
            for logprob, token, _ in fork.meta("next")["output_top_logprobs"][0]
        ]
        candidates.sort(key=lambda candidate: candidate[0], reverse=True)
        parents, live = live, []
        # The best `width` continue; more are only tried where some of those have ended.
        for start in range(0, len(candidates), width):
            tried = [grow(*candidate) for candidate in candidates[start : start + width]]
            for beam in tried:
                over = beam.state.meta("token")["finish_reason"] == "eos" or length == max_tokens
                if over and start == 0:
                    ended.append(beam._replace(score=beam.score / length))
                elif not over and len(live) < width:
                    live.append(beam)
            if len(live) == width or length == max_tokens:
                break
        for state in {*asked, *(beam.state for beam in parents)} - {s}:
            state.cancel()  # Nothing goes on from here: what only it held can be reused.
        ended = sorted(ended, key=lambda beam: beam.score, reverse=True)[:width]
        # Enough, once the live beams (the best is first) do worse than all that ended.
        if len(ended) == width and (not live or live[0].score / length <= ended[-1].score):
            break
    s["beams"] = [(beam.score, beam.ids, beam.state.text()) for beam in ended]


def grow(score: float, beam: Beam, token: int) -> Beam:
    """`beam` with one more token: a bias of 100 leaves no other. (Its text, appended, might be read
    as other tokens, since neighbouring text is tokenised together.)"""
    state = beam.state.fork()[0]
    state += rm.gen("token", max_tokens=1, temperature=0, logit_bias={token: 100})
    return Beam(score, [*beam.ids, token], state)


def main(argv: Sequence[str] | None = None) -> None:
    """Search from each prompt and print the beams with their mean log-probability per token."""
    parser = argparse.ArgumentParser(description="Find the likeliest continuations of a text.")
    parser.add_argument("--prompt", action="append", metavar="TEXT", help="may be repeated")
    parser.add_argument("--beams", type=int, default=4, metavar="K", help="how many (4)")
    parser.add_argument("--tokens", type=int, default=12, metavar="N", help="at most (12)")
    options = parser.parse_args(argv)
    for prompt in options.prompt or PROMPTS:
        state = beam_search.run(prompt=prompt, width=options.beams, max_tokens=options.tokens)
        print(prompt)
        for score, ids, text in state["beams"]:
            print(f"  {score:6.3f}  {text[len(prompt) :]!r}  ({len(ids)} tokens)")


if __name__ == "__main__":
    main()
