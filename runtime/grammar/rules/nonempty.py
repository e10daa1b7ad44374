"""The texts of a terminal other than the empty one, as a regex for Python's `re`."""

from __future__ import annotations

from ramet.runtime.errors import GrammarError
from ramet.runtime.grammar.charset import Ranges
from ramet.runtime.grammar.rules.nodes import Alt, Cat, Chars, Nodes, Ref, Repeat
from ramet.runtime.grammar.rules.solving import fits


def nonempty_regex(nodes: Nodes, node: int) -> str | None:
    """The regex; None if the terminal can't be empty. Raises GrammarError for one nested too
    deep."""
    if not fits(nodes, node):
        raise GrammarError("lark: no trees under this grammar: a terminal is too large")
    empty = _empty(nodes, node)
    if node not in empty:
        return None
    texts: dict[int, str] = {}
    rest: dict[int, str] = {}
    for part in nodes.within([node]):
        texts[part], rest[part] = _written(nodes, part, empty, texts, rest)
    if not rest[node]:
        raise GrammarError(
            "lark: no trees under this grammar: a terminal is only ever empty; leave it out"
        )
    return rest[node]


def regex_of(nodes: Nodes, node: int) -> str:
    """All texts of a terminal, as a regex for Python's `re`."""
    empty = _empty(nodes, node)
    texts: dict[int, str] = {}
    rest: dict[int, str] = {}
    for part in nodes.within([node]):
        texts[part], rest[part] = _written(nodes, part, empty, texts, rest)
    return texts[node]


def _empty(nodes: Nodes, node: int) -> set[int]:
    found: set[int] = set()
    for part in nodes.within([node]):
        match nodes[part]:
            case Cat(parts) if found.issuperset(parts):
                found.add(part)
            case Alt(parts) if not found.isdisjoint(parts):
                found.add(part)
            case Repeat(body, low, _) if low == 0 or body in found:
                found.add(part)
    return found


def _written(
    nodes: Nodes, node: int, empty: set[int], texts: dict[int, str], rest: dict[int, str]
) -> tuple[str, str]:
    """A node's regex, and that of its texts other than the empty one, "" if there are none."""
    match nodes[node]:
        case Chars(ranges):
            return (_set(ranges),) * 2
        case Cat(parts):
            text = "".join(texts[part] for part in parts)
            if node not in empty:
                return text, text
            ways = [
                rest[part] + "".join(texts[after] for after in parts[at + 1 :])
                for at, part in enumerate(parts)
                if rest[part]
            ]
            return text, _either(ways)
        case Alt(parts):
            return _either([texts[part] for part in parts]), _either(
                [rest[part] for part in parts if rest[part]]
            )
        case Repeat(body, low, high):
            inner = rest[body] if body in empty else texts[body]
            least = 0 if body in empty else low
            most = "" if high is None else str(high)
            whole = f"(?:{inner}){{{least},{most}}}" if inner else ""
            return whole, f"(?:{inner}){{{max(1, least)},{most}}}" if inner else ""
        case Ref(rule):
            raise ValueError(f"rule {rule} in a terminal")


def _either(ways: list[str]) -> str:
    return "(?:" + "|".join(ways) + ")" if ways else ""


def _set(ranges: Ranges) -> str:
    return "[" + "".join(f"\\U{first:08x}-\\U{last:08x}" for first, last in ranges) + "]"
