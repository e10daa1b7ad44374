"""The readable report of what each call cost: where its prefix came from, and what was missed."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePath
from typing import Any

from ramet.lang.expr import Gen, Select
from ramet.lang.values import CallValue

_UNKNOWN = "the backend doesn't say"


@dataclasses.dataclass(frozen=True, slots=True)
class CallRecord:
    """One call as `explain` takes it."""

    name: str | None
    """The variable that it made."""
    kind: str
    """"gen" or "select"."""
    branch: str
    """Branch path, such as "0.3"; "" is the program's own."""
    meta: Mapping[str, Any] | None
    """What `s.meta(name)` gives, of the first sample; None of a call that gave nothing."""
    token_text: Callable[[int], str]
    """A token id's text."""
    site: str = ""
    """Its place in the program, if `meta` doesn't say."""
    error: BaseException | None = None
    """Why it gave nothing; with neither, it still runs."""


def explain(calls: Sequence[CallRecord]) -> str:
    """One paragraph per call, in the order given: its place, its prompt, its misses, its time."""
    if not calls:
        return "no calls"
    parts = ["\n  ".join(_lines(number, call)) for number, call in enumerate(calls, 1)]
    return "\n\n".join(parts)


def _lines(number: int, call: CallRecord) -> list[str]:
    meta = call.meta or {}
    site = meta.get("call_site") or call.site
    name = "" if call.name is None else f" {_quoted(call.name)}"
    place = f"at {_short(site)}" if site else "at an unknown place"
    lines = [f"{number}. {call.kind}{name} {place}, {_branch(call.branch)}"]
    if call.meta is None:
        reason = "still running"
        if call.error is not None:
            reason = f"failed: {type(call.error).__name__}: {call.error}"
        return [*lines, reason]
    prefix = meta.get("prefix")
    lines.append(_prompt(meta, prefix))
    if prefix is None:
        lines.append(f"where cached tokens came from and what was missed: {_UNKNOWN}")
    else:
        own = meta.get("program_id")
        lines += [f"cached: {_origin(entry, own, call.branch)}" for entry in prefix["from"]]
        if (miss := prefix["miss"]) is not None:
            lines.append(_miss(miss, call, own))
    lines.append(f"{_output(meta)}; {_time(meta)}")
    return lines


def _prompt(meta: Mapping[str, Any], prefix: Mapping[str, Any] | None) -> str:
    tokens = _tokens(meta.get("prompt_tokens"))
    if prefix is not None:
        cached, computed = prefix["cached"], prefix["charged"]
    else:
        cached = meta.get("cached_tokens")
        computed = meta.get("computed_tokens")
    return f"prompt: {tokens}, {_number(cached)} cached, {_number(computed)} computed for it"


def _origin(entry: Mapping[str, Any], own: object, branch: str) -> str:
    tokens = _tokens(entry["tokens"])
    if entry["call_site"] is None:
        return f"{tokens} from others"
    return f"{tokens} from {_caller(entry, own, branch)}"


def _caller(entry: Mapping[str, Any], own: object, branch: str) -> str:
    """A call as another one sees it."""
    site = _short(entry["call_site"]) or "an unknown place"
    if entry["program_id"] != own:
        program = entry["program"] or "a program"
        return f"{site}, in {program} #{entry['program_id']}, {_branch(entry['branch'])}"
    if entry["branch"] != branch:
        return f"{site}, {_branch(entry['branch'])}"
    return f"{site}, here"


def _miss(miss: Mapping[str, Any], call: CallRecord, own: object) -> str:
    what = f"missed from token {miss['position']:,} on, {_quoted(call.token_text(miss['token']))}"
    if "evicted_by" in miss:
        who = miss["evicted_by"]
        return f"{what}: evicted" + (f" for {_caller(who, own, call.branch)}" if who else "")
    nearest = [_quoted(call.token_text(token)) for token in miss["nearest"]]
    if nearest:
        return f"{what}, where the nearest cached path continues with {' or '.join(nearest)}"
    if miss["position"]:
        return f"{what}: no cached path went further"
    return f"{what}: no cached path that it may share began like it"


def _output(meta: Mapping[str, Any]) -> str:
    if "choices" in meta:
        return f"chose number {meta['index'] + 1} of {len(meta['choices'])}"
    ended = meta.get("finish_reason")
    how = f" (ended by {ended})" if ended else ""
    if meta.get("pool_exhausted"):
        how = " (ended by length: the KV pool holds no more)"
    return f"generated {_tokens(meta.get('completion_tokens'))}{how}"


def _time(meta: Mapping[str, Any]) -> str:
    queued, ran = meta.get("queue_s"), meta.get("run_s")
    if queued is None or ran is None:
        return f"time: {_UNKNOWN}"
    return f"waited {_seconds(queued)}, ran {_seconds(ran)}"


def _seconds(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1000:.1f} ms"


def _number(count: int | None) -> str:
    return "an unknown number" if count is None else f"{count:,}"


def _tokens(count: int | None) -> str:
    of = " of" if count is None else ""
    return f"{_number(count)}{of} token{'' if count == 1 else 's'}"


def _branch(path: str) -> str:
    return f"branch {path}" if path else "main branch"


def _short(site: str) -> str:
    """A site without its folders."""
    return PurePath(site).name


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def record_of(node: Gen | Select, branch: str, value: CallValue, tokenizer: Any) -> CallRecord:
    """The record of a call as it is now; one that failed keeps its error."""
    meta, error = value.peek()

    def token_text(token: int) -> str:
        data: bytes = tokenizer.token_bytes(token)
        return data.decode(errors="replace") or str(tokenizer.special_text(token))

    kind = "gen" if isinstance(node, Gen) else "select"
    return CallRecord(node.name, kind, branch, meta, token_text, node.site, error)
