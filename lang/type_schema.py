"""JSON Schemas of Python types, as pydantic has them, but such that what they allow can be read.

Loaded when a program first names a type. Where pydantic's schema allows what pydantic's validators
then refuse, or says what only documents, it is put right:

- A class's object has no properties but its fields, unless it says `extra="allow"`.
- A set's list may hold an item twice.
- A tagged union's tag is there, also where it has a default.
- Dates, times and durations are spelled so that they exist; a `datetime` may have no zone.
- The `$` of a pattern is the end of the text, as pydantic has it, and never the newline before it.
- An address of the web has one of its type's schemes and a host; a UUID is of its type's version, a
  network has no bits of hosts.
- A Decimal is a number. A dict's keys can be read as what they are.
"""

from __future__ import annotations

import re
import sys
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from pydantic import BaseModel, TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaMode, JsonSchemaValue
from pydantic_core import CoreSchema, core_schema
from typing_extensions import TypedDict

from ramet.lang.errors import InvalidArgument
from ramet.runtime.grammar.json_schema.formats import FORMATS
from ramet.runtime.request import shown

_YEAR: Final = "(?:[1-9][0-9]{3}|0[1-9][0-9]{2}|00[1-9][0-9]|000[1-9])"
_LEAP: Final = (
    "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)-02-29"
)
_DAY: Final = (
    "(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|"
    "(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))"
)
_DATE: Final = f"(?:{_YEAR}-{_DAY}|{_LEAP})"
_TIME: Final = r"(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,6})?"
_ZONE: Final = "(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
_ZONES: Final = {"naive": "", "aware": _ZONE}
_SECONDS: Final = r"[0-9]{1,5}(?:\.[0-9]{1,6})?S"
_MINUTES: Final = f"[0-9]{{1,5}}M(?:{_SECONDS})?"
_CLOCK: Final = f"T(?:[0-9]{{1,5}}H(?:{_MINUTES}|{_SECONDS})?|{_MINUTES}|{_SECONDS})"
_DURATION: Final = f"-?P(?:[0-9]{{1,5}}W|[0-9]{{1,6}}D(?:{_CLOCK})?|{_CLOCK})"

_HEX: Final = "[0-9a-f]"
_BYTE: Final = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_V4: Final = rf"(?:{_BYTE}\.){{3}}{_BYTE}"
_LABEL: Final = "[a-z][a-z0-9]{0,30}(?:-[a-z0-9]{1,30})?"
_PATH: Final = "[a-zA-Z0-9._~!$&'()*+,;=:@-]"
_HOST: Final = (
    rf"//{_LABEL}(?:\.{_LABEL}){{0,5}}(?::[1-9][0-9]{{0,3}})?"
    rf"(?:/{_PATH}*)*(?:\?(?:{_PATH}|[/?])*)?(?:#(?:{_PATH}|[/?])*)?"
)
"""A web address behind its scheme."""
_FORMATS: Final = {
    "ipv4network": (
        rf"{_V4}(?:/32)?|(?:{_BYTE}\.){{3}}0/24|(?:{_BYTE}\.){{2}}0\.0/16|{_BYTE}\.0\.0\.0/8"
    ),
    "ipv4interface": f"{_V4}(?:/(?:3[0-2]|[12]?[0-9]))?",
    "ipv6network": f"(?:{FORMATS['ipv6']})(?:/128)?",
    "ipv6interface": f"(?:{FORMATS['ipv6']})(?:/(?:12[0-8]|1[01][0-9]|[1-9]?[0-9]))?",
}
"""pydantic's own formats, as patterns of the whole text."""

_KEYS: Final = {
    "integer": "^-?(?:0|[1-9][0-9]{0,17})$",
    "number": r"^-?(?:0|[1-9][0-9]{0,17})(?:\.[0-9]{1,17})?$",
}
"""How keys are spelled that are no texts."""
_DOLLAR: Final = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\$", re.DOTALL)
"""An escaped character, a set of characters, or a `$` outside of them."""
_SAYS_NOTHING: Final = {"path", "file-path", "directory-path", "password", "binary"}
"""Formats that any text has."""
_DECIMALS: Final = "has decimals"
"""Under this key a schema says so, on its way out of the generator."""


def adapter_of(argument: str, wanted: Any) -> tuple[TypeAdapter[Any], dict[str, Any], bool]:
    """What validates values of a type, the type's schema, and whether there are Decimals in it.

    Raises InvalidArgument for what is no type that JSON can have.
    """
    if isinstance(wanted, str):
        raise InvalidArgument(f"{argument}={shown(wanted)}: must be a type, not its name")
    if isinstance(wanted, (Mapping, Sequence, int, float)):
        hint = "; a JSON Schema is given as json_schema=" if isinstance(wanted, Mapping) else ""
        raise InvalidArgument(f"{argument}={shown(wanted)}: must be a type{hint}")
    depth = 1  # Names in a type are those of the code that gives it to us.
    while sys._getframe(depth).f_globals.get("__name__", "").startswith("ramet.lang"):
        depth += 1
    try:
        if sys.version_info < (3, 12):
            wanted = _modern(wanted)
        if isinstance(wanted, type) and issubclass(wanted, BaseModel):
            frame = sys._getframe(depth)
            names = {**frame.f_globals, **frame.f_locals}
            wanted.model_rebuild(raise_errors=False, _types_namespace=names)
        adapter = TypeAdapter(wanted, _parent_depth=depth + 2)
        schema = adapter.json_schema(schema_generator=_Generator, mode="validation")
        has_decimals = schema.pop(_DECIMALS, False)
    except Exception as error:  # pydantic has many, and a type's own code may raise any.
        reason = str(error).split("\n")[0] or type(error).__name__
        raise InvalidArgument(
            f"{argument}={shown(wanted)}: pydantic makes no JSON Schema of it: {reason}"
        ) from None
    return adapter, schema, has_decimals


class _Generator(GenerateJsonSchema):
    """pydantic's generator, with what is put right."""

    def generate(self, schema: CoreSchema, mode: JsonSchemaMode = "validation") -> JsonSchemaValue:
        """The whole schema."""
        self._has_decimals = False
        # A default only documents; one that JSON hasn't is left out.
        self.ignored_warning_kinds = {*self.ignored_warning_kinds, "non-serializable-default"}
        found = super().generate(schema, mode)
        for part in _objects(found):
            if part.get("format") in tuple(_SAYS_NOTHING):
                del part["format"]
            if isinstance(name := part.get("format"), str) and name in _FORMATS:
                del part["format"]
                part["pattern"] = f"^(?:{_FORMATS[name]})$"
            if isinstance(part.get("pattern"), str):
                part["pattern"] = _ended(part["pattern"])
            if isinstance(keys := part.get("patternProperties"), dict):
                part["patternProperties"] = {_ended(key): value for key, value in keys.items()}
            if isinstance(part.get("discriminator"), dict) and "oneOf" in part:
                tag = part.pop("discriminator").get("propertyName")
                part["anyOf"] = part.pop("oneOf")
                for option in part["anyOf"]:
                    _require(_followed(option, found), tag)
        if self._has_decimals:
            found[_DECIMALS] = True
        return found

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        """Of a model: closed."""
        found = super().model_schema(schema)
        return found if schema.get("root_model") else _closed(found)

    def dataclass_schema(self, schema: core_schema.DataclassSchema) -> JsonSchemaValue:
        """Of a dataclass: closed."""
        return _closed(super().dataclass_schema(schema))

    def typed_dict_schema(self, schema: core_schema.TypedDictSchema) -> JsonSchemaValue:
        """Of a TypedDict: closed."""
        return _closed(super().typed_dict_schema(schema))

    def tagged_union_schema(self, schema: core_schema.TaggedUnionSchema) -> JsonSchemaValue:
        """Of a tagged union; `generate` sees to the tags."""
        found = super().tagged_union_schema(schema)
        if "discriminator" not in found and "oneOf" in found:
            found["anyOf"] = found.pop("oneOf")
        return found

    def set_schema(self, schema: core_schema.SetSchema) -> JsonSchemaValue:
        """Of a set: any list."""
        return _without(super().set_schema(schema), "uniqueItems")

    def frozenset_schema(self, schema: core_schema.FrozenSetSchema) -> JsonSchemaValue:
        """Of a frozenset: any list."""
        return _without(super().frozenset_schema(schema), "uniqueItems")

    def decimal_schema(self, schema: core_schema.DecimalSchema) -> JsonSchemaValue:
        """Of a Decimal: a number."""
        self._has_decimals = True
        found = super().decimal_schema(schema)
        numbers = [one for one in found.get("anyOf", ()) if one.get("type") == "number"]
        return numbers[0] if numbers else found

    def date_schema(self, schema: core_schema.DateSchema) -> JsonSchemaValue:
        """Of a date: one that exists."""
        return _spelled(_DATE)

    def time_schema(self, schema: core_schema.TimeSchema) -> JsonSchemaValue:
        """Of a time."""
        return _spelled(_TIME + _zone(schema.get("tz_constraint")))

    def datetime_schema(self, schema: core_schema.DatetimeSchema) -> JsonSchemaValue:
        """Of a date and a time."""
        return _spelled(f"{_DATE}T{_TIME}{_zone(schema.get('tz_constraint'))}")

    def timedelta_schema(self, schema: core_schema.TimedeltaSchema) -> JsonSchemaValue:
        """Of a duration."""
        found = super().timedelta_schema(schema)
        return _spelled(_DURATION) if found.get("format") == "duration" else found

    def uuid_schema(self, schema: core_schema.UuidSchema) -> JsonSchemaValue:
        """Of a UUID: of its version, if it has one."""
        version = schema.get("version")
        if version is None:
            return super().uuid_schema(schema)
        rest = f"{version}{_HEX}{{3}}-[89ab]{_HEX}{{3}}-{_HEX}{{12}}"
        return _spelled(f"{_HEX}{{8}}-{_HEX}{{4}}-{rest}")

    def url_schema(self, schema: core_schema.UrlSchema) -> JsonSchemaValue:
        """Of an address: with one of its schemes, if it has any, and a host."""
        found = super().url_schema(schema)
        schemes = schema.get("allowed_schemes")
        if not schemes:
            return found
        one = "|".join(map(re.escape, schemes))
        return _without(found, "format") | _spelled(f"(?:{one}):{_HOST}")

    def dict_schema(self, schema: core_schema.DictSchema) -> JsonSchemaValue:
        """Of a dict: with keys that can be read."""
        found = super().dict_schema(schema)
        keys = self.generate_inner(schema["keys_schema"]) if "keys_schema" in schema else {}
        if "$ref" in keys:
            keys = self.get_schema_from_definitions(keys["$ref"]) or {}
        values = self.generate_inner(schema["values_schema"]) if "values_schema" in schema else {}
        names = keys.get("enum", [keys["const"]] if "const" in keys else None)
        if keys.get("type") == "boolean":
            names = ["true", "false"]
        pattern = keys.get("pattern", _KEYS.get(keys.get("type", "")))
        if isinstance(names, list) and all(isinstance(name, str) for name in names):
            found = _without(found, "propertyNames")
            return _closed(found | {"properties": dict.fromkeys(names, values)}, force=True)
        if isinstance(pattern, str):
            found = _without(found, "propertyNames")
            return _closed(found | {"patternProperties": {pattern: values}}, force=True)
        return found


def _modern(wanted: Any, outer: tuple[Any, ...] = ()) -> Any:
    """A type with `typing`'s TypedDicts replaced by those of `typing_extensions`, which pydantic
    demands before Python 3.12. One that refers to itself stays, and is refused."""
    if typing.is_typeddict(wanted) and type(wanted).__module__ == "typing":
        if wanted in outer:
            return wanted
        fields: dict[str, Any] = {}
        for name, hint in typing.get_type_hints(wanted, include_extras=True).items():
            if typing.get_origin(hint) in (typing.Required, typing.NotRequired):
                (hint,) = typing.get_args(hint)
            required = name in wanted.__required_keys__
            mark: Any = typing.Required if required else typing.NotRequired
            fields[name] = mark[_modern(hint, (*outer, wanted))]
        make: Any = TypedDict
        return make(wanted.__name__, fields)
    origin, arguments = typing.get_origin(wanted), typing.get_args(wanted)
    if origin is typing.Annotated:
        return typing.Annotated[(_modern(arguments[0], outer), *arguments[1:])]
    changed = tuple(_modern(one, outer) for one in arguments)
    if all(new is old for new, old in zip(changed, arguments, strict=True)):
        return wanted
    if origin in (typing.Union, types.UnionType):
        return typing.Union[changed]  # noqa: UP007
    return types.GenericAlias(origin, changed)


def _closed(found: JsonSchemaValue, *, force: bool = False) -> JsonSchemaValue:
    if force or ("properties" in found and "additionalProperties" not in found):
        found["additionalProperties"] = False
    return found


def _without(found: JsonSchemaValue, key: str) -> JsonSchemaValue:
    return {name: value for name, value in found.items() if name != key}


def _ended(regex: str) -> str:
    """A regex whose `$` is the end of the text."""
    return _DOLLAR.sub(lambda found: r"\Z" if found[0] == "$" else found[0], regex)


def _spelled(regex: str) -> JsonSchemaValue:
    return {"type": "string", "pattern": f"^{regex}$"}


def _zone(constraint: Any) -> str:
    return _ZONES.get(constraint, f"{_ZONE}?") if not isinstance(constraint, int) else _ZONE


def _objects(schema: JsonSchemaValue) -> Iterator[dict[str, Any]]:
    """All objects in a schema."""
    stack: list[Any] = [schema]
    while stack:
        found = stack.pop()
        if isinstance(found, dict):
            yield found
            stack.extend(found.values())
        elif isinstance(found, list):
            stack.extend(found)


def _followed(option: dict[str, Any], schema: JsonSchemaValue) -> dict[str, Any]:
    """What an option is, or refers to."""
    name = re.fullmatch(r"#/\$defs/([^/]+)", option.get("$ref", ""))
    found = schema.get("$defs", {}).get(name[1]) if name else option
    return found if isinstance(found, dict) else option


def _require(found: dict[str, Any], tag: Any) -> None:
    """Make the tag one of an object's required properties, in the place that it is declared at."""
    properties = found.get("properties", {})
    if tag in properties and tag not in found.get("required", ()):
        required = {tag, *found.get("required", ())}
        found["required"] = [name for name in properties if name in required]
