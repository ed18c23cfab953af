"""Schemas compiled for generic code: defaults, links, order of lists, classes of change.

The annotations are ours and validators ignore them: ``x-link``, ``x-depends``, ``x-peers``, ``x-uri``, ``x-set``,
``x-named``, ``x-sorted``, ``x-change``, ``x-secret``, ``x-unmodelled``, ``x-unmodelled-values`` and ``x-inert``;
docs/schemas.md explains them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import msgspec

from reconciler.documents.schema.loader import load_schema

_EACH = 0
"""The step to the entries of a list in a path."""


class FieldSchema(msgspec.Struct):
    """One place in a schema. ``plain``: it has no defaults, links or sorted lists at or below it.

    ``fill`` holds the defaults of its fields in normal form, ``fill_open`` those that are lists or mappings, which
    need a copy; ``active`` are the fields that are not plain.
    """

    properties: dict[str, FieldSchema] = {}
    active: tuple[tuple[str, FieldSchema], ...] = ()
    extra: FieldSchema | None = None
    items: FieldSchema | None = None
    fill: dict[str, Any] = {}
    fill_open: tuple[str, ...] = ()
    link: tuple[str, ...] = ()
    depends: bool = True
    peers: tuple[str, ...] = ()
    uri: bool = False
    mount: bool = False
    is_set: bool = False
    named: str = ""
    is_sorted: bool = False
    change: str = ""
    secret: bool = False
    unmodelled: str = ""
    unmodelled_values: dict[str, str] = {}
    inert: tuple[Any, ...] = ()
    plain: bool = True

    def member(self, name: str) -> FieldSchema | None:
        """The shape of the field ``name``, None for an unknown field."""
        return self.properties.get(name, self.extra)


@cache
def shape_of(name: str) -> FieldSchema:
    """The compiled schema of a kind."""
    return _compile_schema(load_schema(name))


@cache
def secret_shape(secret_type: str) -> FieldSchema:
    """The compiled schema of the data of secrets of one type, which ``shape_of`` keeps closed."""
    forms = {form["if"]["properties"]["type"]["const"]: form["then"] for form in load_schema("secret")["allOf"]}
    return _compile_schema(forms[secret_type]["properties"]["data"])


def is_inert(shape: FieldSchema, value: Any) -> bool:
    """Whether ``value`` of a field means the same as if it were left out.

    A mapping does nothing if it has all members of an inert one that is not empty, whatever else it has.
    """
    return any(value == inert_value or _includes_fields(value, inert_value) for inert_value in shape.inert)


def _compile_schema(schema: dict[str, Any]) -> FieldSchema:
    shape = FieldSchema(
        link=tuple(schema.get("x-link", ())),
        depends=schema.get("x-depends", True),
        peers=tuple(schema.get("x-peers", ())),
        uri=bool(schema.get("x-uri")),
        mount=schema.get("x-uri") == "mount",
        is_set=schema.get("x-set", False),
        named=schema.get("x-named", ""),
        is_sorted=schema.get("x-sorted", False),
        change=schema.get("x-change", ""),
        secret=schema.get("x-secret", False),
        unmodelled=schema.get("x-unmodelled", ""),
        unmodelled_values=schema.get("x-unmodelled-values", {}),
        inert=tuple(schema.get("x-inert", ())),
    )
    if shape.secret:
        return shape
    parts = _list_schema_parts(schema)
    shape.properties = {
        name: _compile_schema(child) for part in parts for name, child in part.get("properties", {}).items()
    }
    shape.active = tuple((name, child) for name, child in shape.properties.items() if not child.plain)
    shape.fill = {
        name: _normal_default(shape.properties[name], child["default"])
        for name, child in schema.get("properties", {}).items()
        if "default" in child
    }
    shape.fill_open = tuple(name for name, default in shape.fill.items() if isinstance(default, dict | list))
    shape.items = next((_compile_schema(part["items"]) for part in reversed(parts) if "items" in part), None)
    extra = schema.get("additionalProperties")
    shape.extra = _compile_schema(extra) if isinstance(extra, dict) else None
    children = [*shape.properties.values(), *filter(None, (shape.items, shape.extra))]
    formed = shape.inert or shape.link or shape.uri or shape.fill or shape.is_set or shape.is_sorted
    shape.plain = not formed and all(child.plain for child in children)
    return shape


def _normal_default(shape: FieldSchema, default: Any) -> Any:
    """A default in normal form; no schema has a link in one."""
    if isinstance(default, dict):
        members = {name: _normal_default(shape.properties[name], member) for name, member in default.items()}
        return {**shape.fill, **members}
    return sorted(default) if shape.is_set else default


def _list_schema_parts(schema: dict[str, Any]) -> list[dict[str, Any]]:
    """``schema`` and the alternatives in it, the outermost last, so that it has precedence."""
    parts = [part for word in ("allOf", "anyOf", "oneOf") for part in schema.get(word, ())]
    return [*(part for part in parts if isinstance(part, dict)), schema]


def _includes_fields(value: Any, inert: Any) -> bool:
    both = isinstance(value, dict) and isinstance(inert, dict)
    return both and bool(inert) and inert.items() <= value.items()


class UnmodelledField(NamedTuple):
    """A field of a document. ``meaning`` completes "the platform …"; with an ``inert`` value it does nothing there.

    ``value`` is "" unless the field has an effect here with other values.
    """

    path: tuple[str | int, ...]
    meaning: str
    inert: bool
    value: str = ""

    def __str__(self) -> str:
        return self._with_value(".".join(step for step in self.path if isinstance(step, str)))

    @property
    def name(self) -> str:
        """The field, and its value if that matters."""
        return self._with_value(str(self.path[-1]))

    def _with_value(self, name: str) -> str:
        return f"{name}: {self.value}" if self.value else name


def find_unmodelled(kind: str, value: Mapping[str, Any]) -> Iterator[UnmodelledField]:
    """The fields of ``value``, a document of ``kind``, that have no effect here; it may have faults."""
    for path, shape in unmodelled_paths(kind):
        for at, content in _list_values_at(value, path, ()):
            if shape.unmodelled:
                yield UnmodelledField(at, shape.unmodelled, is_inert(shape, content))
            elif isinstance(content, str) and (meaning := _describe_value(shape, content)):
                yield UnmodelledField(at, meaning, inert=False, value=content)


def _describe_value(shape: FieldSchema, value: str) -> str:
    """What the platform does with ``value``; "" if the field has an effect here."""
    meanings = (meaning for pattern, meaning in shape.unmodelled_values.items() if re.fullmatch(pattern, value))
    return next(meanings, "")


def describe_unmodelled_fields(kind: str, value: Mapping[str, Any]) -> tuple[str, ...]:
    """A sentence for each field of ``value``, a manifest in normal form, that would have an effect on the platform."""
    meanings = {str(field): field.meaning for field in find_unmodelled(kind, value) if not field.inert}
    return tuple(f"{name} has no effect here; the platform {meaning}." for name, meaning in meanings.items())


def recorded_sentences(kind: str, body: bytes) -> tuple[str, ...]:
    """As ``describe_unmodelled_fields``, of a recorded ``body``; most have no such field, and are not decoded."""
    return (
        describe_unmodelled_fields(kind, msgspec.json.decode(body))
        if _compile_mention_pattern(kind).search(body)
        else ()
    )


@cache
def _compile_mention_pattern(kind: str) -> re.Pattern[bytes]:
    """What finds an unmodelled field or value in JSON."""
    names: set[str] = set()
    for path, shape in unmodelled_paths(kind):
        names |= {f'"{path[-1]}":'} if shape.unmodelled else set()
        names |= {f'"{path[-1]}":"(?:{pattern})"' for pattern in shape.unmodelled_values}
    return re.compile("|".join(sorted(names)).encode() if names else rb"(?!)")


@cache
def unmodelled_paths(kind: str) -> tuple[tuple[tuple[str | int, ...], FieldSchema], ...]:
    """The path of each unmodelled field in documents of ``kind``, 0 for the entries of a list."""
    return tuple(_list_unmodelled_paths(shape_of(kind), ()))


def _list_unmodelled_paths(
    shape: FieldSchema, path: tuple[str | int, ...]
) -> Iterator[tuple[tuple[str | int, ...], FieldSchema]]:
    for name, child in shape.properties.items():
        if child.unmodelled or child.unmodelled_values:
            yield (*path, name), child
        else:
            yield from _list_unmodelled_paths(child, (*path, name))
    if shape.items is not None:
        yield from _list_unmodelled_paths(shape.items, (*path, _EACH))


def _list_values_at(
    value: Any, path: Sequence[str | int], done: tuple[str | int, ...]
) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    """The places of ``path`` in ``value``, each with what is there."""
    if not path:
        yield done, value
        return
    step, *rest = path
    if step == _EACH:
        for index, item in enumerate(value if isinstance(value, list) else ()):
            yield from _list_values_at(item, rest, (*done, index))
    elif isinstance(value, Mapping) and step in value:
        yield from _list_values_at(value[step], rest, (*done, step))
