"""Programs made at random, as data that a body executes, and a backend that records what it sees.

A program's data is fixed before it runs, so the same body can be interpreted, traced and compiled.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fake_backend import FakeBackend, FakeHandle

import ramet.lang as rm
from ramet.runtime.client.call import Call
from ramet.runtime.request import SamplingParams

Op = tuple[Any, ...]
ARGS: Mapping[str, str] = {"q": "Why? ", "k": "\n k"}
"""The arguments of every program, and a value for each."""
JOINS = ("gather_variable", "concate_and_append")
ROLES = ("system", "user", "assistant")


def shout(*args: object) -> str:
    """A tool."""
    return "!".join(map(str, args)).upper()


def pair(first: object, second: object) -> tuple[object, list[object]]:
    """A tool whose value isn't text."""
    return first, [second]


@dataclasses.dataclass(frozen=True)
class Program:
    """A random program's steps, and what it returns."""

    ops: tuple[Op, ...]
    returned: Any

    def body(self, s: rm.ProgramState, q: str, k: str) -> Any:
        """The program's body."""
        arguments = {"q": q, "k": k}
        execute(self.ops, s, arguments)
        return value_of(self.returned, s, arguments)


def execute(ops: Sequence[Op], s: Any, arguments: Mapping[str, Any]) -> None:
    """Do steps on a state."""
    for kind, *rest in ops:
        if kind == "text":
            s += text_of(rest[0], s, arguments)
        elif kind == "gen":
            s += text_of(rest[0], s, arguments) + rm.gen(rest[1], **rest[2])
        elif kind == "select":
            choices = [text_of(choice, s, arguments) for choice in rest[1]]
            s += rm.select(rest[0], choices, **rest[2])
        elif kind == "fork":
            forks = s.fork(len(rest[0]))
            forks += lambda i: f"<{i}>"
            for fork, own in zip(forks, rest[0], strict=True):
                execute(own, fork, arguments)
            forks.join(rest[1])
        elif kind == "copy":
            with s.copy() as twin:
                execute(rest[0], twin, arguments)
        elif kind == "span":
            with s.var_scope(rest[0]):
                execute(rest[1], s, arguments)
        elif kind == "role":
            with getattr(s, rest[0])():
                execute(rest[1], s, arguments)
        elif kind == "set":
            s.set_var(rest[0], value_of(rest[1], s, arguments))
        else:
            assert kind == "call"
            s[rest[0]] = rm.call(rest[1], *[value_of(arg, s, arguments) for arg in rest[2]])


def text_of(pieces: Sequence[tuple[str, str, str]], s: Any, arguments: Mapping[str, Any]) -> Any:
    """A text of literals, arguments and variables, put together as the pieces say."""
    whole: Any = ""
    for kind, name, way in pieces:
        part = name if kind == "literal" else arguments[name] if kind == "arg" else s[name]
        if way == "plain" and (kind != "var" or isinstance(part, str) or not as_list(part)):
            whole = whole + part
        else:
            whole = whole + (f"[{part}]" if way == "format" else str(part))
    return whole


def as_list(value: object) -> bool:
    """Whether a value is a list here and now."""
    return isinstance(value, (list, tuple))


def value_of(value: Any, s: Any, arguments: Mapping[str, Any]) -> Any:
    """A value: ("var", name), ("arg", name), ("text", pieces), or data with such inside."""
    match value:
        case ("var", str(name)):
            return s[name]
        case ("arg", str(name)):
            return arguments[name]
        case ("text", pieces):
            return text_of(pieces, s, arguments)
        case list():
            return [value_of(item, s, arguments) for item in value]
        case tuple():
            return tuple(value_of(item, s, arguments) for item in value)
        case dict():
            return {key: value_of(item, s, arguments) for key, item in value.items()}
    return value


class _Names(dict[str, str]):
    """The variables that may be read in a fork; `given` are those that it gave a value itself."""

    def __init__(self, names: Mapping[str, str]) -> None:
        super().__init__(names)
        self.given: set[str] = set()

    def __setitem__(self, name: str, kind: str) -> None:
        super().__setitem__(name, kind)
        self.given.add(name)

    def update(self, names: Mapping[str, str]) -> None:  # type: ignore[override]
        for name, kind in names.items():
            self[name] = kind


class Maker:
    """Makes programs. `names` are the variables that may be read at a place, by what they are:
    "text", or "other", which may only be given on as a value."""

    def __init__(self, seed: int, choosing: bool = True) -> None:
        self._random = random.Random(seed)
        self._choosing = choosing
        self._numbers = iter(range(10_000))

    def program(self) -> Program:
        """The next program."""
        names: dict[str, str] = {}
        ops = self._ops(names, depth=0, role=False, count=self._random.randint(3, 7))
        return Program(tuple(ops), self._value(names))

    def _ops(self, names: dict[str, str], *, depth: int, role: bool, count: int) -> list[Op]:
        ops: list[Op] = []
        for _ in range(count):
            kinds = ["text", "text", "gen", "gen", "set", "call"]
            kinds += ["select"] if self._choosing else []
            kinds += ["fork", "fork", "copy", "span"] if depth < 2 else []
            kinds += ["role"] if not role and not depth else []
            kind = self._random.choice(kinds)
            ops.append(getattr(self, f"_{kind}")(names, depth, role))
        return ops

    def _text(self, names: dict[str, str], _depth: int, _role: bool) -> Op:
        return "text", self._pieces(names)

    def _gen(self, names: dict[str, str], _depth: int, _role: bool) -> Op:
        options: dict[str, Any] = {"max_tokens": self._random.randint(1, 4)}
        sometimes: dict[str, list[Any]] = {
            "temperature": [0, 0.5, 1.0],
            "n": [2, 3],
            "stop": ["b", ["c", "d"]],
            "seed": [7],
            "top_k": [5],
        }
        for key, values in sometimes.items():
            if self._random.random() < 0.3:
                options[key] = self._random.choice(values)
        name = self._name() if self._random.random() < 0.8 else None
        op = "gen", self._pieces(names), name, options
        if name is not None:
            names[name] = "other" if options.get("n", 1) > 1 else "text"
        return op

    def _select(self, names: dict[str, str], _depth: int, _role: bool) -> Op:
        choices = [*(self._pieces(names, first=f"{i} ") for i in range(self._random.randint(1, 3)))]
        sampled = {"choices_method": rm.exact_likelihood, "temperature": 1.0}
        options: dict[str, Any] = self._random.choice([{}, sampled])
        name = self._name()
        names[name] = "text"
        return "select", name, choices, options

    def _fork(self, names: dict[str, str], depth: int, role: bool) -> Op:
        children, mode = [], self._random.choice(JOINS)
        gathered: set[str] = set()
        for _ in range(self._random.randint(1, 3)):
            own = _Names(names)
            count = self._random.randint(0, 3)
            children.append(self._ops(own, depth=depth + 1, role=role, count=count))
            gathered.update(own.given)
        if mode == JOINS[0]:
            names.update(dict.fromkeys(sorted(gathered), "gathered"))
        return "fork", children, mode

    def _copy(self, names: dict[str, str], depth: int, role: bool) -> Op:
        own = _Names(names)
        ops = self._ops(own, depth=depth + 1, role=role, count=2)
        names.update(dict.fromkeys(sorted(own.given), "gathered"))
        return "copy", ops

    def _span(self, names: dict[str, str], depth: int, role: bool) -> Op:
        ops = self._ops(names, depth=depth + 1, role=role, count=2)
        name = self._name()
        names[name] = "text"
        return "span", name, ops

    def _role(self, names: dict[str, str], depth: int, _role: bool) -> Op:
        role = self._random.choice(ROLES)
        return "role", role, self._ops(names, depth=depth + 1, role=True, count=2)

    def _set(self, names: dict[str, str], _depth: int, _role: bool) -> Op:
        op = "set", self._name(), self._value(names)
        names[op[1]] = "set"
        return op

    def _call(self, names: dict[str, str], _depth: int, _role: bool) -> Op:
        tools: list[Callable[..., object]] = [shout, pair]
        tool = self._random.choice(tools)
        op = "call", self._name(), tool, [self._value(names), self._value(names)]
        names[op[1]] = "text" if tool is shout else "other"
        return op

    def _value(self, names: dict[str, str]) -> Any:
        makers: list[Callable[[], Any]] = [
            lambda: self._random.choice([None, 3, 0.5, True, "plain", ("a", 1), {"k": [1]}]),
            lambda: ("arg", self._random.choice(list(ARGS))),
            lambda: ("text", self._pieces(names)),
            lambda: [self._value(names), ("arg", "q")],
            lambda: {"in": self._value(names)},
            lambda: (0, self._value(names)),
        ]
        if names:
            makers += [lambda: ("var", self._random.choice(list(names)))] * 3
        return self._random.choice(makers)()

    def _pieces(self, names: dict[str, str], first: str = "") -> list[tuple[str, str, str]]:
        pieces = [("literal", first, "plain")] if first else []
        for _ in range(self._random.randint(1, 3)):
            way = self._random.choice(["plain", "format", "str"])
            literal = self._random.choice(["", "x", "a b ", "\n", "Ünï{}"])
            pieces.append(("literal", literal, "plain"))
            if self._random.random() < 0.3:
                pieces.append(("arg", self._random.choice(list(ARGS)), way))
            texts = [name for name, kind in names.items() if kind in ("text", "other")]
            if texts and self._random.random() < 0.5:
                name = self._random.choice(texts)
                pieces.append(("var", name, way if names[name] == "text" else "format"))
        return pieces

    def _name(self) -> str:
        number = next(self._numbers)
        # Some names are used again: the last value counts, and a join takes new ones only.
        return f"v{number % 7 if self._random.random() < 0.2 else number}"


def outcome(state: rm.ProgramState) -> dict[str, Any]:
    """All that a program made, as far as a reader sees it."""
    names = sorted(state._branch.variables)
    return {
        "text": state.text(),
        "messages": state.messages(),
        "history": {name: state.history(name) for name in names},
        "returned": state.ret_value,
    }


class RecordingBackend(FakeBackend):
    """Writes texts that depend on the prompt, and if sampled on seed, branch and call; `seen` has
    every call's place, prompt and parameters."""

    def __init__(self) -> None:
        super().__init__(self._write, pick=self._pick)
        self.seen: list[tuple[Any, ...]] = []
        self._here: tuple[Any, ...] = ()
        self._counts: dict[FakeHandle, int] = {}

    def _start(self, handle: FakeHandle, op: str, rest: list[Any]) -> Any:
        number = self._counts.get(handle, 0)
        self._counts[handle] = number + 1
        own = rest[1].seed if op == "generate" else None
        sampled = rest[1].temperature if op == "generate" else rest[3]
        seed = handle.seed if own is None else own
        self._here = (seed, handle.path, number) if sampled else ()
        self.seen.append((handle.seed, handle.path, number, handle.text, *map(_plain, rest[1:])))
        return super()._start(handle, op, rest)

    def _write(self, prompt: str, params: SamplingParams, sample: int) -> str:
        key = (prompt, params.temperature, sample, *self._here)
        return "".join(random.Random(repr(key)).choices("abcdefgh \n", k=6))

    def _pick(self, prompt: str, choices: list[str]) -> int:
        return random.Random(repr((prompt, choices, *self._here))).randrange(len(choices))


def _plain(value: object) -> object:
    if isinstance(value, Call):
        return None
    return tuple(value) if isinstance(value, list) else value


__all__ = [
    "ARGS",
    "Maker",
    "Program",
    "RecordingBackend",
    "outcome",
]
