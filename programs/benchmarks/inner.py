"""Benchmarks of ramet's own parts, without peers: `frontend`, `scheduler` and `constrained`.

`frontend`: the Python that a call costs the user's process, beyond turning text into tokens, for
programs that run as they are written and compiled. It is processor time of the whole process (the
engine runs in another one), the least of several rounds. On a shared machine times vary with what
else runs, so the cost of sending and receiving the same messages as JSON stands beside them.

`scheduler`: what the engine does around a step of the model, plan and collect: steps that only
decode, by number of running rows and of waiting calls, and steps that admit, by policy. Without the
model, its logits and the sampler's arithmetic, and without taking operations and sending events.
Processor time, the least of several rounds, and in units of a fixed piece of work that is timed in
between.

`constrained`: with the built-in model, what a token costs under a JSON Schema: its mask (following
the text, finding what may come next, applying it to the logits) by itself; then whole generations,
wall time, in turn: free text and JSON of as many tokens, and documents of many fixed keys with and
without jumps over forced text.
"""

from __future__ import annotations

import gc
import itertools
import json
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import ramet.lang as rm
from ramet.runtime.engine import Engine
from ramet.runtime.request import SamplingParams
from ramet.runtime.sampling.arithmetic import Arithmetic
from ramet.runtime.sampling.rows import Sampled
from ramet.runtime.tokenizer import Tokenizer

CALLS = 10
STEPS = 32
"""Steps of a round: each row takes a fresh page twice."""
GOAL = (60.0, 3.0)
"""Microseconds of plan and collect: a step, and each running row."""
TASKS = 40
"""Beginnings that the calls of the admission table share."""
BURST = 16
"""Calls that each of its steps ends and admits."""


@rm.function
def chain(s: rm.ProgramState, question: str) -> None:
    """Ten short calls on one context."""
    s += "Q: " + question + "\n"
    for _ in range(CALLS):
        s += "A:" + rm.gen("answer", max_tokens=1, temperature=0)


def least(work: Callable[[], object], rounds: int, divisor: int) -> float:
    """Processor seconds of one round over `divisor`, the least of `rounds`, in microseconds."""
    times = []
    for _ in range(rounds):
        gc.collect()
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return min(times) / divisor * 1e6


def frontend(runs: int, rounds: int) -> None:
    """Print microseconds of Python per call."""
    with rm.Runtime(model="tiny") as runtime:
        rm.set_default_backend(runtime)
        tokenizer = runtime.tokenizer
        count = runs * CALLS

        def tokenise() -> None:
            for _ in range(count):
                tokenizer.encode([("A:", "text")], continuation=True)

        meta = dict(chain.run(question="0").meta("answer"))
        meta["prompt_token_ids"] = []  # They don't cross.
        op = {
            "op": "generate",
            "ctx": 1,
            "call": 2,
            "params": {"max_new_tokens": 1, "temperature": 0},
            "keys": [2**63],
            "stream": False,
            "site": f"{__file__}:30",
        }
        event = {"ev": "done", "call": 2, "results": [{"text": "x"}], "meta": meta}

        def as_json() -> None:
            for _ in range(count):
                json.dumps([op])
                json.loads(json.dumps([event]))

        items = [{"question": str(number)} for number in range(runs)]
        compiled = chain.compile()
        tokens = least(tokenise, rounds, count)
        floor = least(as_json, rounds, count)
        print(f"turning the text into tokens     {tokens:6.1f} µs a call (not counted below)")
        print(f"the same messages as JSON        {floor:6.1f} µs a call")
        for name, program in (("interpreted", chain), ("compiled", compiled)):
            program.run_batch(items)
            cost = least(lambda p=program: p.run_batch(items), rounds, count) - tokens  # type: ignore[misc]
            print(
                f"{name:12} programs            {cost:6.1f} µs a call, {cost / floor:4.1f} × JSON"
            )
        rm.set_default_backend(None)


class Machine:
    """A model that computes nothing; each token is the same."""

    vocab_size = 259

    def forward(self, batch: object) -> None:
        """Nothing."""

    def logits(self, slots: Sequence[int], masks: Sequence[bytes] | None = None) -> Any:
        """The slots."""
        return slots

    def likeliest(self, slots: Sequence[int]) -> tuple[list[int], list[float]]:
        """The same token for each slot."""
        return [65] * len(slots), [0.0] * len(slots)


def same_token() -> Arithmetic:
    """A sampler that computes nothing; nobody asks for log-probabilities here."""
    drawn = Sampled(65)

    def sample(_logits: object, rows: Sequence[object]) -> list[Sampled]:
        return [drawn] * len(rows)

    def refuse(_logits: object, _asked: Sequence[object]) -> list[Any]:
        raise NotImplementedError

    def greedy(tokens: Sequence[int], _best: object) -> list[Sampled]:
        return [drawn] * len(tokens)

    return Arithmetic(sample, greedy, refuse, refuse, refuse, refuse)


class Load:
    """An engine over that machine, and the calls it is given."""

    def __init__(self, **settings: Any) -> None:
        self.engine = Engine(
            Machine(), Tokenizer.tiny(), arithmetic=same_token(), max_context=1 << 20, **settings
        )
        self._numbers = itertools.count(1)

    def call(self, ids: list[int], tokens: int, temperature: float = 0.0) -> None:
        """A program of one call."""
        ctx, number = next(self._numbers), next(self._numbers)
        params = SamplingParams(max_new_tokens=tokens, temperature=temperature, ignore_eos=True)
        op = {"op": "generate", "call": number, "params": params.to_wire(), "keys": [number]}
        self.engine.submit(
            [
                {"op": "open", "ctx": ctx, "program": ctx},
                {"op": "append", "ctx": ctx, "ids": ids},
                {**op, "ctx": ctx, "site": "bench"},
                {"op": "close", "ctx": ctx},
            ]
        )

    def step(self) -> float:
        """One step; the seconds of its plan and its collect."""
        start = time.process_time()
        batch = self.engine.plan()
        self.engine.launch(batch)
        self.engine.collect(batch)
        seconds = time.process_time() - start
        self.engine.take_events()
        return seconds

    def steps(self, count: int) -> float:
        """Microseconds of one of that many steps, on average."""
        return sum(self.step() for _ in range(count)) / count * 1e6


def fresh(number: int, length: int) -> list[int]:
    """A text of its own for each number below 65,536; two tokens or more."""
    return [number % 256, number // 256, *([7] * (length - 2))]


NUMBERS = list(range(1000))
"""What the unit of the machine writes as JSON."""


def beside(works: Sequence[Callable[[], float]], rounds: int) -> list[tuple[float, float]]:
    """What each of `works`, done in turn, takes: the least of its own microseconds, and the median
    in units timed just before."""
    costs: list[list[float]] = [[] for _ in works]
    shares: list[list[float]] = [[] for _ in works]
    for _ in range(rounds):
        gc.collect()
        for index, work in enumerate(works):
            start = time.process_time()
            for _ in range(20):
                json.dumps(NUMBERS)
            unit = (time.process_time() - start) / 20 * 1e6
            costs[index].append(work())
            shares[index].append(costs[index][-1] / unit)
    return [(min(c), statistics.median(u)) for c, u in zip(costs, shares, strict=True)]


def decoding(rows: int, waiting: int, temperature: float, rounds: int) -> Callable[[], float]:
    """Steps in which so many rows decode below one beginning of 1,000 tokens."""
    limit = (rounds + 2) * STEPS
    pool = 2000 + rows * (limit + 64)
    load = Load(pool_tokens=pool, chunk_tokens=2048, max_running=rows)
    for number in range(rows + waiting):
        load.call([1] * 1000 + fresh(number, 2 + number % 16), limit, temperature)
    load.steps(8 + rows * 20 // 2048)  # all prompts are computed
    return lambda: load.steps(STEPS)


def admitting(policy: str, waiting: int) -> Callable[[], float]:
    """Steps that end and admit calls while so many more wait, for each call."""
    load = Load(pool_tokens=1 << 18, chunk_tokens=8192, max_running=BURST, policy=policy)
    numbers = itertools.count()

    def come(count: int) -> None:
        for number in itertools.islice(numbers, count):
            load.call([number % TASKS] * 400 + fresh(number, 20), 1)

    def burst() -> float:
        taken = load.step()
        come(BURST)
        return taken / BURST * 1e6

    come(waiting + BURST)
    for _ in range(2 * TASKS // BURST):
        burst()
    return lambda: sum(burst() for _ in range(8)) / 8


def line(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """The fixed part and the slope through (x, y), by least squares of the relative error."""
    a = sum(1 / y**2 for _, y in points)
    b = sum(x / y**2 for x, y in points)
    c = sum(x * x / y**2 for x, y in points)
    d, e = sum(1 / y for _, y in points), sum(x / y for x, y in points)
    slope = (a * e - b * d) / (a * c - b * b)
    return (d - b * slope) / a, slope


def scheduler(rows: Sequence[int], waiting: Sequence[int], rounds: int) -> None:
    """Print what plan and collect take."""
    print("one unit: json.dumps(list(range(1000)))")
    print(f"a step that only decodes; the goal is {GOAL[0]:.0f} µs + {GOAL[1]:.0f} µs a row")
    for name, temperature in (("greedy", 0.0), ("temperature 0.8", 0.8)):
        found = beside([decoding(count, 0, temperature, rounds) for count in rows], rounds)
        for count, (cost, units) in zip(rows, found, strict=True):
            share = cost / (GOAL[0] + GOAL[1] * count)
            tell(f"{count:6} rows, {name}", cost, units, f", {share:4.2f} × the goal")
        if len(rows) > 1:
            fixed, each = line([(n, cost) for n, (cost, _) in zip(rows, found, strict=True)])
            print(f"       fitted: {fixed:.1f} µs + {each:.2f} µs a row")
    most = max(rows)
    print(f"the same with {most} greedy rows, while others wait")
    found = beside([decoding(most, count, 0.0, rounds) for count in waiting], rounds)
    for count, (cost, units) in zip(waiting, found, strict=True):
        tell(f"{count:6} waiting", cost, units)
    print(f"steps that end and admit {BURST} calls whose beginnings are cached, for each call")
    for policy in ("program", "dfs", "fcfs"):
        found = beside([admitting(policy, count) for count in waiting], rounds)
        for count, (cost, units) in zip(waiting, found, strict=True):
            tell(f"{count:6} waiting, {policy}", cost, units)


def record(**properties: Any) -> dict[str, Any]:
    """The schema of an object with these properties and no others."""
    closed = {"required": list(properties), "additionalProperties": False}
    return {"type": "object", "properties": properties, **closed}


TEXT, FLAG = {"type": "string"}, {"type": "boolean"}
LIST = {"type": "array", "items": TEXT}
PERSON = record(name=TEXT, born={"type": "integer"}, known_for=LIST, alive=FLAG)
DOCUMENT = '{"name":"Ada Lovelace","born":1815,"known_for":["poetry","programs"],"alive":false}'
NUMERALS = ("one", "two", "three", "four", "five", "six", "seven", "eight")
FLAGS = record(**{f"question_number_{word}_was_answered": FLAG for word in NUMERALS})


def mask_cost(tokenizer: Tokenizer, rounds: int) -> dict[str, float]:
    """Microseconds per token of the parts of a constrained step, each the least of `rounds`."""
    import torch

    from ramet.kernels import ops
    from ramet.runtime.grammar.compiler import Compilation, Compiler
    from ramet.runtime.grammar.guide import Guide
    from ramet.runtime.grammar.jump import Jumps
    from ramet.runtime.grammar.spec import Constraint
    from ramet.runtime.grammar.vocabulary import Vocabulary

    def encode(text: str) -> list[int]:
        return tokenizer.encode([(text, "content")], continuation=True)

    vocabulary = Vocabulary(tokenizer)
    grammar = Compiler(vocabulary).compile(Constraint("json_schema", json.dumps(PERSON)))
    jumps, params = Jumps(vocabulary, encode), SamplingParams(max_new_tokens=128)
    ids, logits = encode(DOCUMENT), torch.randn(1, vocabulary.size)

    def write() -> dict[str, float]:
        spent = dict.fromkeys(("mask", "application", "certificate"), 0.0)
        guide = Guide(Compilation.of(grammar), params, jumps)
        guide.begin(128)
        for at, token in enumerate(ids):
            t0 = time.perf_counter()
            words = bytearray(guide.mask(True))
            t1 = time.perf_counter()
            ops.apply_bitmask(logits, torch.frombuffer(words, dtype=torch.int32)[None])
            t2 = time.perf_counter()
            assert guide.choose(token, ids[max(0, at - 4) : at], 128 - at) == token
            t3 = time.perf_counter()
            guide.take(token, True)
            assert guide.finished == (at == len(ids) - 1)  # It finds the next mask.
            t4 = time.perf_counter()
            spent["mask"] += t1 - t0 + t4 - t3
            spent["application"] += t2 - t1
            spent["certificate"] += t3 - t2
        return {part: seconds / len(ids) * 1e6 for part, seconds in spent.items()}

    found = [write() for _ in range(rounds + 1)]
    return {part: min(costs[part] for costs in found) for part in found[0]}


def constrained(rounds: int) -> None:
    """Print what constraints cost and save."""
    with rm.Runtime() as runtime:
        parts = mask_cost(runtime.tokenizer, rounds)
        cost = parts["mask"] + parts["application"]
        print(f"mask and its application  {cost:6.1f} µs a token (goal 50)")
        print(f"staying closable          {parts['certificate']:6.1f} µs a token")

        def seconds(prompt: str, **params: Any) -> tuple[float, int]:
            start = time.perf_counter()
            found = runtime.generate(prompt, {"temperature": 0, "max_tokens": 100, **params})
            assert isinstance(found, dict)
            return time.perf_counter() - start, found["meta"]["completion_tokens"]

        schema, flags = json.dumps(PERSON), json.dumps(FLAGS)
        json_prompt = "A record of Ada Lovelace as JSON, with all she was known for:\n"
        flags_prompt = "Which questions were answered, as JSON:\n"
        ratios: list[float] = []
        speedups: list[float] = []
        for number in range(rounds):
            name = f"Record {number}. "
            for prompt in (name + json_prompt, name + flags_prompt):
                seconds(prompt, max_tokens=1)  # Computed before, for both.
            took, count = seconds(name + json_prompt, json_schema=schema, jump_forward=False)
            free, same = seconds(name + json_prompt, max_tokens=count, ignore_eos=True)
            assert same == count
            ratios.append(took / free)
            sampled, _ = seconds(name + flags_prompt, json_schema=flags, jump_forward=False)
            jumped, _ = seconds(name + flags_prompt, json_schema=flags)
            speedups.append(sampled / jumped)
        print(f"JSON, each token sampled  {statistics.median(ratios):6.2f} × the time of free text")
        print(f"many fixed keys, jumps    {statistics.median(speedups):6.2f} × faster a document")


def tell(what: str, cost: float, units: float, more: str = "") -> None:
    """Print one line of the table."""
    print(f"{what:30} {cost:9.1f} µs, {units:6.2f} units{more}")
