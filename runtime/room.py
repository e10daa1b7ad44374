"""EngineRoom: what the parts of the engine share, passed whole instead of field by field."""

from __future__ import annotations

import dataclasses
import itertools
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from ramet.runtime.cache.absence import Away
from ramet.runtime.cache.node import Node
from ramet.runtime.cache.origin import Origin
from ramet.runtime.cache.radix_tree import RadixTree
from ramet.runtime.counters import Counters
from ramet.runtime.errors import ContextOverflow, PoolTooSmall
from ramet.runtime.sampling.arithmetic import Arithmetic, torch_arithmetic
from ramet.runtime.sampling.rows import Drawn, DrawOrder, Sampled
from ramet.runtime.schedule.batch import Batch
from ramet.runtime.schedule.call import GenerateCall, ScoreCall
from ramet.runtime.schedule.context import Context, Place, Program
from ramet.runtime.schedule.scheduler import Scheduler
from ramet.runtime.schedule.trace_log import TraceLog
from ramet.runtime.tokenizer import Tokenizer

if TYPE_CHECKING:
    from torch import Tensor


class Runner(Protocol):
    """The model behind the engine: computes batches, and logits of computed slots."""

    vocab_size: int

    def forward(self, batch: Batch) -> None:
        """Compute the batch's rows: K, V and what logits are computed from, at `batch.slots`."""

    def logits(self, slots: Sequence[int], masks: Sequence[bytes] | None = None) -> Tensor:
        """The logits [len(slots), vocab_size] at computed slots, float32 or float64; they are good
        until the next call. Those of tokens that none of `masks` has may be minus infinity."""
        ...

    def likeliest(self, slots: Sequence[int]) -> tuple[list[int], list[float]]:
        """The likeliest token, the lowest id among ties, and the largest logit at each of some
        computed slots; NaN is largest."""
        ...


@runtime_checkable
class DrawingRunner(Runner, Protocol):
    """A runner on a device that works by itself, and draws tokens there."""

    def launch(self, batch: Batch, order: DrawOrder) -> Drawn:
        """Begin to compute the batch's rows, of which there may be none, and then to draw what is
        ordered, if anything is; return at once. A token id `-1 - i` in the batch is token number
        `i` of those that the launch before draws."""
        ...


@dataclasses.dataclass(slots=True)
class EngineRoom:
    """The composed parts, and the limits that every call is checked against."""

    runner: Runner
    tokenizer: Tokenizer
    tree: RadixTree
    scheduler: Scheduler
    counters: Counters
    max_context: int
    emit: Callable[[dict[str, Any]], None]
    """Send an event to the client."""
    arrivals: itertools.count[int] = dataclasses.field(default_factory=itertools.count)
    trace: TraceLog = dataclasses.field(default_factory=TraceLog)
    arithmetic: Arithmetic = dataclasses.field(default_factory=torch_arithmetic)
    clock: Callable[[], float] = time.monotonic
    """Seconds; only differences mean something."""

    def check_fits(self, tokens: int, what: str, new_tokens: int = 0) -> None:
        """Raise ContextOverflow or PoolTooSmall if a path of that many tokens can never run.

        The context must also hold `new_tokens` sampled after it, which take no slot at once.
        """
        if tokens + new_tokens > self.max_context:
            more = f" and needs room for {new_tokens} more" if new_tokens else ""
            raise ContextOverflow(
                f"{what} is {tokens} tokens long{more}; the context holds {self.max_context}"
            )
        slots = self.tree.pool.num_pages * self.tree.pool.page_size
        if tokens > slots:
            raise PoolTooSmall(f"{what} is {tokens} tokens long; the KV pool holds {slots}")

    def logits(self, slots: Sequence[int], masks: Sequence[bytes] | None = None) -> Tensor:
        """The runner's logits, counted."""
        self.counters.head_rows += len(slots)
        return self.runner.logits(slots, masks)

    def greedy(self, slots: Sequence[int], where: Sequence[int]) -> list[Sampled]:
        """The likeliest tokens at computed slots, one for each index in `where`; counted as
        logits."""
        self.counters.head_rows += len(slots)
        tokens, best = self.runner.likeliest(slots)
        return self.arithmetic.greedy([tokens[row] for row in where], [best[row] for row in where])

    def books(self) -> dict[str, Any]:
        """`Engine.stats`, as far as it is known here."""
        tree, pool, scheduler = self.tree, self.tree.pool, self.scheduler
        size = pool.page_size
        return {
            **self.counters.to_dict(),
            **self.trace.report(),
            "computed_tokens": tree.edge_tokens + tree.decode_tokens + tree.recomputed_tokens,
            "edge_tokens": tree.edge_tokens,
            "decode_tokens": tree.decode_tokens,
            "recomputed_tokens": tree.recomputed_tokens,
            "evicted_tokens": tree.evicted_tokens,
            "retractions": scheduler.retractions,
            "pool_tokens": pool.num_pages * size,
            "free_tokens": pool.free_pages * size,
            "cached_pool_tokens": pool.cached_pages * size,
            "held_tokens": pool.held_pages * size,
            "running": len(scheduler.running),
            "waiting": scheduler.num_waiting,
        }

    def token_text(self, token: int) -> str:
        """How a token is named in reports: its text, or a special token's own spelling."""
        if token in self.tokenizer.special_ids:
            return self.tokenizer.special_text(token)
        return self.tokenizer.token_bytes(token).decode(errors="replace")

    def place(self, context: Context, op: dict[str, Any], salt: str | None) -> Place:
        """Where the call of an operation, in that namespace, stands in its program."""
        site = sys.intern(str(op.get("site", "")))
        origin = context.origins.get((site, salt))
        if origin is None:
            program = context.program
            account = self.counters.account(site, program.name)
            origin = Origin(site, program.name, program.id, context.path, salt, account)
            context.origins[site, salt] = origin
        return Place(context, origin, op.get("depth"), int(op.get("remaining", 0)))

    @staticmethod
    def begin(origin: Origin, prompt_tokens: int, charged: int) -> None:
        """Count a call that starts; `prompt_tokens` are those of all its samples."""
        account = origin.account
        account.calls += 1
        account.prompt_tokens += prompt_tokens
        account.cached_tokens += prompt_tokens - charged

    def log(
        self,
        call: GenerateCall | ScoreCall,
        node: Node,
        prompt_tokens: int,
        charged: int,
        tails: Iterable[Sequence[int]] = (),
    ) -> None:
        """Put a call that starts, or a part of one, at the end of `node` into the trace."""
        logged = self.trace.begin(
            _namespace(node),
            node.path_ids(),
            prompt_tokens=prompt_tokens,
            charged_tokens=charged,
            tails=tails,
        )
        if logged is not None:
            call.logged.append(logged)

    def forget(self, program: Program, node: Node) -> None:
        """The last context of a program ends at `node`: if it shared with nobody, its ids go out of
        the trace."""
        if not program.cache:
            self.trace.forget(_namespace(node))

    def settle(self, call: GenerateCall | ScoreCall) -> dict[str, Any]:
        """Count the time of a call that is over; what `meta` says of it whatever its kind is.

        `queue_s` is until it was first admitted, `run_s` from then on.
        """
        now = self.clock()
        started = min((s.started for s in call.sequences if s.started is not None), default=now)
        for logged in call.logged:
            self.trace.end(logged, call.decoded)
            if call.alone:
                self.trace.forget(logged.namespace)
        origin = call.place.origin
        origin.account.queue_seconds += started - call.submitted
        origin.account.run_seconds += now - started
        return {
            "call_site": origin.site,
            "program_id": origin.program_id,
            "queue_s": started - call.submitted,
            "run_s": now - started,
            "prefix": call.prefix,
        }

    def leave(self, context: Context, site: str) -> None:
        """A call from `site` is over, and its context has nothing more to do until its user comes
        back: its path may give way."""
        node = context.node
        if node is not None and not context.queue and context.ready:
            context.away = node.away = Away(site, self.clock())
            self.tree.queue.offer(node)

    def come_back(self, context: Context, closes: bool) -> None:
        """The user of a context that was away goes on with it, or closes it."""
        away, node = context.away, context.node
        if away is None:
            return
        context.away = None
        if not closes:
            self.tree.queue.absences.record(away.site, self.clock() - away.since)
        if node is not None and node.away is away:
            node.away = None

    def slots_of(self, node: Node, positions: Sequence[int]) -> list[int]:
        """Pool slots of ascending positions on the path to `node`, all computed."""
        found: list[int] = []
        wanted = list(positions)
        for step in node.ancestors():
            here = [p for p in wanted if step.start <= p < step.end]
            if here:
                low, high = here[0] - step.start, here[-1] + 1 - step.start
                span = step.slots(low, high)
                found = [span[p - here[0]] for p in here] + found
                wanted = wanted[: len(wanted) - len(here)]
            if not wanted:
                break
        return found


def _namespace(node: Node) -> int:
    """What tells calls that never share apart."""
    *_, root = node.ancestors()
    assert root.path_hash is not None
    return root.path_hash
