"""llama-cpp-python: one call after the other, each on what its own cache still has of the prompt.

It keeps the tokens of the last call and reuses the longest beginning they share with the next.
Calls are taken depth-first (the last to become ready first), which keeps a tree's upper part there.
"""

from __future__ import annotations

import ctypes
import itertools
import json
from typing import Any

import llama_cpp
import numpy as np
from peer import Call, Result


class LlamaCpp:
    """One `Llama`."""

    constraints = True

    def __init__(self, gguf: str, cores: int) -> None:
        self.version = f"llama-cpp-python {llama_cpp.__version__}"
        self.settings = (
            f"{gguf.rsplit('-', 1)[-1].rsplit('/', 1)[-1]}, {cores} threads, flash attention, "
            "one call at a time in depth-first order, the KV cache reused up to the longest common "
            "beginning, its own JSON grammar"
        )
        self._model = llama_cpp.Llama(
            gguf,
            n_ctx=8192,
            n_batch=512,
            n_threads=cores,
            n_threads_batch=cores,
            flash_attn=True,
            verbose=False,
        )
        self._eos = {self._model.token_eos()}
        self._grammars: dict[str, Any] = {}
        self._stack: list[Call] = []

    def tokenize(self, text: str) -> list[int]:
        """See `peer.System`."""
        return list(self._model.tokenize(text.encode(), add_bos=False, special=True))

    def detokenize(self, ids: list[int]) -> str:
        """See `peer.System`."""
        return self._model.detokenize(ids).decode(errors="replace")

    def begin(self) -> None:
        """Nothing is left of the run before: its texts begin otherwise."""
        self._model.reset()

    def add(self, calls: list[Call]) -> None:
        """See `peer.System`."""
        self._stack.extend(reversed(calls))

    def finished(self) -> list[tuple[Call, Result]]:
        """The next call, from beginning to end."""
        call = self._stack.pop()
        if call.choices:
            return [(call, Result(picked=self._select(call)))]
        samples = []
        for number in range(call.step["n"]):
            self._model.set_seed(call.seed + 1000 * number)
            samples.append(self._sample(call.ids, call.step))
        return [(call, Result(samples))]

    def _sample(self, ids: list[int], step: dict[str, Any]) -> list[int]:
        tokens = self._model.generate(
            ids,
            temp=step["temperature"],
            top_k=0,
            top_p=1.0,
            min_p=0.0,
            repeat_penalty=1.0,
            grammar=self._grammar(step["schema"]),
        )
        tokens = itertools.islice(tokens, step["max_tokens"])
        if step["schema"] is None:
            return list(tokens)
        return list(itertools.takewhile(lambda token: token not in self._eos, tokens))

    def _grammar(self, schema: Any) -> Any:
        if schema is None:
            return None
        # A grammar can be used for any number of samplers: the text is parsed again for each.
        key = json.dumps(schema)
        if key not in self._grammars:
            self._grammars[key] = llama_cpp.LlamaGrammar.from_json_schema(key, verbose=False)
        return self._grammars[key]

    def _select(self, call: Call) -> int:
        """The choice with the largest mean log-probability; the prompt is computed once."""
        model = self._model
        common = 0
        for ours, theirs in zip(model._input_ids, call.ids[:-1], strict=False):
            if ours != theirs:
                break
            common += 1
        model.n_tokens = common
        model.eval(call.ids[common:])
        length, first = model.n_tokens, self._logprobs(-1)
        means = []
        for choice in call.choices:
            total = float(first[choice[0]])
            model.n_tokens = length
            for before, token in itertools.pairwise(choice):
                model.eval([before])
                total += float(self._logprobs(-1)[token])
            means.append(total / len(choice))
        return int(np.argmax(means))

    def _logprobs(self, row: int) -> Any:
        pointer = llama_cpp.llama_get_logits_ith(self._model._ctx.ctx, row)
        logits = np.ctypeslib.as_array(
            ctypes.cast(pointer, ctypes.POINTER(ctypes.c_float)), (self._model.n_vocab(),)
        ).astype(np.float32)
        top = logits.max()
        return logits - top - np.log(np.exp(logits - top).sum())


def load(folder: str | None, gguf: str | None, cores: int) -> LlamaCpp:
    """The system."""
    if gguf is None:
        raise ValueError("the model has no .gguf file, the only kind that llama.cpp loads")
    return LlamaCpp(gguf, cores)
