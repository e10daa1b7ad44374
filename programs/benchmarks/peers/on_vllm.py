"""vLLM: its engine's own loop, so that calls are batched as they come, with its prefix cache on."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import vllm
from peer import Call, Result
from vllm.sampling_params import RequestOutputKind, StructuredOutputsParams


@dataclasses.dataclass
class Scoring:
    """A select that is being scored."""

    call: Call
    scores: list[float]
    open: int
    """Requests that are not back."""


class Vllm:
    """One engine, in this process."""

    constraints = True

    def __init__(self, folder: str, cores: int) -> None:
        self.version = f"vLLM {vllm.__version__}"
        self.settings = (
            f"CPU build, bfloat16, {cores} threads on all cores, engine in the process, prefix "
            "caching on, continuous batching (256 sequences, 4096 tokens a step), structured "
            "outputs without white space; select by the log-probabilities of the next token, so "
            "that prefixes are reused"
        )
        self._engine = vllm.LLM(
            folder,
            dtype="bfloat16",
            max_model_len=8192,
            max_num_seqs=256,
            max_num_batched_tokens=4096,
            enable_prefix_caching=True,
            disable_log_stats=True,
            structured_outputs_config={"backend": "xgrammar", "disable_any_whitespace": True},
        ).llm_engine
        self._tokenizer = self._engine.get_tokenizer()
        self._numbers = itertools.count()
        self._calls: dict[str, Call] = {}
        self._scoring: dict[str, tuple[Scoring, dict[int, list[int]]]] = {}

    def tokenize(self, text: str) -> list[int]:
        """See `peer.System`."""
        return list(self._tokenizer.encode(text, add_special_tokens=False))

    def detokenize(self, ids: list[int]) -> str:
        """See `peer.System`."""
        return str(self._tokenizer.decode(ids, skip_special_tokens=True))

    def begin(self) -> None:
        """See `peer.System`."""
        self._engine.reset_prefix_cache()

    def add(self, calls: list[Call]) -> None:
        """See `peer.System`."""
        for call in calls:
            if call.choices:
                self._score(call)
                continue
            step = call.step
            schema, structured = step["schema"], None
            if schema is not None:
                structured = StructuredOutputsParams(json=schema)
            self._calls[
                self._send(
                    call.ids,
                    temperature=step["temperature"],
                    max_tokens=step["max_tokens"],
                    n=step["n"],
                    ignore_eos=schema is None,
                    structured_outputs=structured,
                )
            ] = call

    def finished(self) -> list[tuple[Call, Result]]:
        """See `peer.System`."""
        done: list[tuple[Call, Result]] = []
        while not done:
            for output in self._engine.step():
                if not output.finished:
                    continue
                if output.request_id in self._scoring:
                    done += self._scored(output)
                else:
                    call = self._calls.pop(output.request_id)
                    done.append((call, Result([self._ids(call, one) for one in output.outputs])))
        return done

    def _ids(self, call: Call, output: Any) -> list[int]:
        ids = list(output.token_ids)
        if call.step["schema"] is not None and ids and ids[-1] == self._tokenizer.eos_token_id:
            ids.pop()
        return ids

    def _send(self, ids: list[int], **params: Any) -> str:
        name = str(next(self._numbers))
        sampling = vllm.SamplingParams(
            output_kind=RequestOutputKind.FINAL_ONLY, detokenize=False, **params
        )
        self._engine.add_request(name, {"prompt_token_ids": ids}, sampling)
        return name

    def _score(self, call: Call) -> None:
        """One request per text that a token of some choice follows: its next token's scores."""
        below: dict[tuple[int, ...], dict[int, list[int]]] = {}
        for number, choice in enumerate(call.choices):
            for place, token in enumerate(choice):
                at = below.setdefault(tuple(choice[:place]), {})
                at.setdefault(token, []).append(number)
        scoring = Scoring(call, [0.0] * len(call.choices), len(below))
        for path, tokens in below.items():
            name = self._send(
                call.ids + list(path), max_tokens=1, temperature=0, logprob_token_ids=list(tokens)
            )
            self._scoring[name] = (scoring, tokens)

    def _scored(self, output: Any) -> list[tuple[Call, Result]]:
        scoring, tokens = self._scoring.pop(output.request_id)
        found = output.outputs[0].logprobs[0]
        for token, numbers in tokens.items():
            for number in numbers:
                scoring.scores[number] += found[token].logprob / len(scoring.call.choices[number])
        scoring.open -= 1
        if scoring.open:
            return []
        return [(scoring.call, Result(picked=scoring.scores.index(max(scoring.scores))))]


def load(folder: str | None, gguf: str | None, cores: int) -> Vllm:
    """The system."""
    if folder is None:
        raise ValueError("the model has no folder that vLLM could load")
    return Vllm(folder, cores)
