"""The schema files, in a source tree or an installed wheel, and their content without references."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from reconciler.model.kinds.table import TABLE

KIND_NAMES = tuple(str(kind) for kind in TABLE)
"""The schemas of kinds, named after their kind."""

SCHEMA_NAMES = (*KIND_NAMES, "settings", "repository", "status", "run-status")
"""All schemas: one per kind, the settings, those in a repository, and the two types of status files."""

_LOCAL = "#/$defs/"
"""Each schema has all parts to which it refers."""
_PACKAGE = Path(__file__).resolve().parents[2]


def find_shipped_path(relative: str) -> Path:
    """The file or directory ``relative`` (``schemas``, ``examples/repo``) that comes with the program.

    An installed wheel has it inside the package, a source tree beside it. Raises FileNotFoundError.
    """
    for base in (_PACKAGE / "_shipped", _PACKAGE.parent):
        path = base / relative
        if path.exists():
            return path
    raise FileNotFoundError(f"{relative} is missing from this installation of reconciler")


def schema_path(name: str) -> Path:
    """The file of the schema ``name``. Raises FileNotFoundError."""
    return find_shipped_path(f"schemas/{name}.json")


@cache
def load_schema(name: str) -> dict[str, Any]:
    """The schema ``name`` with every ``$ref`` replaced by its target, so that it is a plain tree.

    Keywords beside a ``$ref`` (title, description, default) take precedence. The result is shared: do not change it.
    Raises FileNotFoundError.
    """
    written: dict[str, Any] = msgspec.json.decode(schema_path(name).read_bytes())
    inlined: dict[str, Any] = _inline_references(written, written.get("$defs", {}))
    return {key: value for key, value in inlined.items() if key not in ("$defs", "$id")}


def _inline_references(node: Any, definitions: Mapping[str, Any]) -> Any:
    if isinstance(node, list):
        return [_inline_references(item, definitions) for item in node]
    if not isinstance(node, dict):
        return node
    own = {key: _inline_references(value, definitions) for key, value in node.items() if key not in ("$ref", "$defs")}
    if "$ref" not in node:
        return own
    return {**_inline_references(definitions[node["$ref"].removeprefix(_LOCAL)], definitions), **own}


@cache
def field_names() -> frozenset[str]:
    """The names of all fields of all kinds."""
    return frozenset(name for kind in KIND_NAMES for name in _field_names(load_schema(kind)))


def _field_names(schema: Any) -> Iterator[str]:
    if isinstance(schema, list):
        for item in schema:
            yield from _field_names(item)
    elif isinstance(schema, dict):
        properties = schema.get("properties")
        yield from properties if isinstance(properties, dict) else ()
        for member in schema.values():
            yield from _field_names(member)
