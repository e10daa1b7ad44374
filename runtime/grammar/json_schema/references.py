"""References: which place of a schema's text a `$ref` means. Nothing is ever fetched."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import unquote, urljoin

from ramet.runtime.grammar.json_schema.text import refuse, step

_DATA: Final = ("enum", "const", "default", "examples")
"""Keywords whose values are no schemas, so that nothing in them is a name."""

Path = tuple[str | int, ...]
"""A place in the text: keys and indices from the root."""


class References:
    """The names in one schema's text: `$id` (or `id`), `$anchor`, `$dynamicAnchor`."""

    def __init__(self, root: Any, draft: int) -> None:
        self._root = root
        self._id = "id" if draft == 4 else "$id"
        self._refs_stand_alone = draft <= 7
        self._resources: dict[str, Path] = {"": ()}
        self._anchors: dict[tuple[str, str], Path] = {}
        self._dynamic: dict[str, list[Path]] = {}
        self._collect()

    def base(self, path: Path) -> str:
        """The URI that references at a place are relative to."""
        base, value = "", self._root
        for name in (None, *path):
            if name is not None:
                value = value[name]
            base = self._enter(base, value)
        return base

    def resolve(self, reference: str, at: Path, pointer: str) -> Path:
        """The place that a reference at `at` names; raises GrammarError for one it can't."""
        base = self.base(at)
        if reference.startswith("#"):
            resource, fragment = base, reference[1:]
        else:
            resource, _, fragment = urljoin(base, reference).partition("#")
        start = self._resources.get(resource)
        if start is None:
            refuse(
                pointer,
                f"{reference!r:.200} is no schema in this text (its $id would be "
                f"{resource!r:.200}), and nothing is fetched",
            )
        fragment = unquote(fragment)
        if not fragment:
            return start
        if not fragment.startswith("/"):
            found = self._anchors.get((resource, fragment))
            if found is None:
                refuse(pointer, f"{reference!r:.200}: there is no anchor {fragment!r:.200}")
            return found
        return self._walk(start, fragment, reference, pointer)

    def dynamic(self, name: str) -> list[Path]:
        """The places with a `$dynamicAnchor` of a name; `""` for `$recursiveAnchor`."""
        return self._dynamic.get(name, [])

    def value(self, path: Path) -> Any:
        """What stands at a place."""
        value = self._root
        for name in path:
            value = value[name]
        return value

    def _walk(self, path: Path, fragment: str, reference: str, pointer: str) -> Path:
        value = self.value(path)
        for raw in fragment[1:].split("/"):
            name = raw.replace("~1", "/").replace("~0", "~")
            if isinstance(value, dict) and name in value:
                path = (*path, name)
            elif isinstance(value, list) and name in map(str, range(len(value))):
                path = (*path, int(name))
            else:
                refuse(pointer, f"{reference!r:.200}: there is no {name!r:.200} to point at")
            value = value[path[-1]]
        return path

    def _enter(self, base: str, value: Any) -> str:
        """The base within a value that may have an id."""
        if not isinstance(value, dict) or (self._refs_stand_alone and "$ref" in value):
            return base
        name = value.get(self._id)
        if not isinstance(name, str) or name.startswith("#"):
            return base
        return urljoin(base, name).partition("#")[0]

    def _collect(self) -> None:
        waiting: list[tuple[Path, str, Any]] = [((), "", self._root)]
        while waiting:
            path, base, value = waiting.pop()
            if isinstance(value, list):
                waiting += [((*path, i), base, part) for i, part in enumerate(value)]
            if not isinstance(value, dict):
                continue
            inner = self._enter(base, value)
            if inner != base:
                self._resources.setdefault(inner, path)
            self._name(path, inner, value)
            for key, part in value.items():
                if key not in _DATA or (path and path[-1] == "properties"):
                    waiting.append(((*path, key), inner, part))

    def _name(self, path: Path, base: str, value: dict[str, Any]) -> None:
        names = [value.get("$anchor"), value.get("$dynamicAnchor")]
        old = value.get(self._id)
        if isinstance(old, str) and old.startswith("#"):
            names.append(old[1:])
        for name in names:
            if isinstance(name, str):
                if (base, name) in self._anchors:
                    refuse(step("", *path), f"the anchor {name!r:.200} is there twice")
                self._anchors[base, name] = path
        if isinstance(names[1], str):
            self._dynamic.setdefault(names[1], []).append(path)
        if value.get("$recursiveAnchor") is True:
            self._dynamic.setdefault("", []).append(path)
