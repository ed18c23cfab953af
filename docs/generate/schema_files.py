"""The schema files: what is generated in each, so that it needs no other file, and two that are generated as a whole.

A schema refers to the shared parts of `common.json` by `#/$defs/common.NAME`, and has a copy of each.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from reconciler.documents.schema.loader import KIND_NAMES, SCHEMA_NAMES, find_shipped_path, schema_path
from reconciler.model.revision import SUFFIXES

SCHEMAS = find_shipped_path("schemas")
Json = dict[str, Any]
MANIFEST = "A manifest of any kind; the schema of its kind applies, so a file may contain several kinds."
_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_COMMON = "common"
_PREFIX = f"{_COMMON}."
_LOCAL = "#/$defs/"
_ID_LINE = re.compile(r'^  "\$id": .*\n', re.MULTILINE)
_KINDS = re.compile(r'(^    "kind": \{"type": "string", "enum": )[^\n]*\}', re.MULTILINE)
_COPIES = re.compile(rf',?\n    "{re.escape(_PREFIX)}[^\n]*')
_EMPTY_DEFINITIONS = re.compile(r',\n  "\$defs": \{\n  \}')


def files() -> dict[str, str]:
    """File name → text of every schema file that is generated, as a whole or in part."""
    whole = {"manifest": _manifest(), "catalog": _catalog()}
    texts = {f"{name}.json": _complete(name) for name in (_COMMON, *SCHEMA_NAMES)}
    return texts | {f"{name}.json": _write_members(made) for name, made in whole.items()}


def _write_members(schema: Json) -> str:
    """The text of a generated file: each member of its members on a line, since nobody writes there."""
    text = json.dumps(schema, indent=2)
    definitions = ",\n".join(f'    "{key}": {json.dumps(part)}' for key, part in schema.get("$defs", {}).items())
    if definitions:
        head = json.dumps({key: value for key, value in schema.items() if key != "$defs"}, indent=2)
        text = head.removesuffix("\n}") + f',\n  "$defs": {{\n{definitions}\n  }}\n}}'
    return f"{text}\n"


def _identify(name: str) -> str:
    """The `$id` of a schema: a name, since no server has the files."""
    return f"urn:reconciler:schema:{name}"


def _complete(name: str) -> str:
    """The text of a schema file that people write, with its `$id` and its copies of shared parts."""
    text = _ID_LINE.sub("", schema_path(name).read_text(), count=1)
    text = text.replace(f'  "$schema": "{_DIALECT}",\n', f'  "$schema": "{_DIALECT}",\n  "$id": "{_identify(name)}",\n')
    if name == _COMMON:
        return _KINDS.sub(f"\\1{json.dumps(sorted(KIND_NAMES))}}}", text)
    text = _EMPTY_DEFINITIONS.sub("", _COPIES.sub("", text))
    copies = ",\n".join(f'    "{key}": {json.dumps(part)}' for key, part in _copy_shared(json.loads(text)).items())
    if not copies:
        return text
    if '\n  "$defs": {\n' in text:
        return text.removesuffix("\n  }\n}\n") + f",\n{copies}\n  }}\n}}\n"
    return text.removesuffix("\n}\n") + f',\n  "$defs": {{\n{copies}\n  }}\n}}\n'


def _copy_shared(schema: Json) -> Json:
    """The shared parts to which ``schema`` refers, directly or through others, by the names of their copies."""
    shared = json.loads(_complete(_COMMON))["$defs"]
    copies: Json = {}
    waiting = sorted(set(_list_shared(schema)))
    while waiting:
        key = waiting.pop(0)
        if key not in copies:
            copies[key] = _move_references(shared[key.removeprefix(_PREFIX)], _PREFIX)
            waiting += sorted(set(_list_shared(copies[key])))
    return dict(sorted(copies.items()))


def _list_shared(node: Any) -> Iterator[str]:
    """The names of the copies to which ``node`` refers."""
    if isinstance(node, list):
        for item in node:
            yield from _list_shared(item)
    elif isinstance(node, dict):
        if str(node.get("$ref", "")).startswith(_LOCAL + _PREFIX):
            yield node["$ref"].removeprefix(_LOCAL)
        for value in node.values():
            yield from _list_shared(value)


def _move_references(node: Any, prefix: str) -> Any:
    """``node`` with ``prefix`` before the name of each definition to which it refers, but for shared parts."""
    if isinstance(node, list):
        return [_move_references(item, prefix) for item in node]
    if not isinstance(node, dict):
        return node
    moved = {key: _move_references(value, prefix) for key, value in node.items()}
    target = node.get("$ref")
    if isinstance(target, str) and not target.startswith(_LOCAL + _PREFIX):
        moved["$ref"] = _LOCAL + prefix + target.removeprefix(_LOCAL)
    return moved


def _manifest() -> Json:
    definitions: Json = {}
    for name in KIND_NAMES:
        schema = _move_references(json.loads(_complete(name)), f"{name}.")
        parts = schema.pop("$defs", {})
        definitions[name] = {key: value for key, value in schema.items() if key not in ("$schema", "$id")}
        definitions |= {key if key.startswith(_PREFIX) else f"{name}.{key}": part for key, part in parts.items()}
    return {
        "$schema": _DIALECT,
        "$id": _identify("manifest"),
        "title": "Manifest",
        "description": MANIFEST,
        "type": "object",
        "required": ["kind"],
        "properties": {
            "kind": {
                "$ref": f"{_LOCAL}{_PREFIX}kind",
                "title": "Kind",
                "description": "The kind of the resource.",
                "examples": ["workload"],
            }
        },
        "allOf": [
            {
                "if": {"required": ["kind"], "properties": {"kind": {"const": name}}},
                "then": {"$ref": f"{_LOCAL}{name}"},
            }
            for name in KIND_NAMES
        ],
        "$defs": definitions,
    }


def _catalog() -> Json:
    manifests = {
        "name": "Reconciler manifest",
        "description": MANIFEST,
        "fileMatch": [f"**/manifests/**/*{suffix}" for suffix in SUFFIXES],
        "url": "manifest.json",
    }
    settings = {
        "name": "Reconciler settings",
        "description": _written("settings")["description"],
        "fileMatch": ["reconciler.yaml", "**/etc/reconciler/*.yaml"],
        "url": "settings.json",
    }
    repository = {
        "name": "Reconciler repository",
        "description": _written("repository")["description"],
        "fileMatch": [".reconciler.yaml"],
        "url": "repository.json",
    }
    return {
        "$schema": "https://json.schemastore.org/schema-catalog.json",
        "version": 1,
        "schemas": [manifests, *map(_entry, KIND_NAMES), settings, repository],
    }


def _entry(kind: str) -> Json:
    schema = _written(kind)
    return {
        "name": f"Reconciler {schema['title']}",
        "description": schema["description"],
        # Not KIND.json: that is the schema itself.
        "fileMatch": [*(f"*.{kind}{suffix}" for suffix in SUFFIXES), f"{kind}.yaml", f"{kind}.yml"],
        "url": f"{kind}.json",
    }


def _written(name: str) -> Json:
    written: Json = json.loads(schema_path(name).read_bytes())
    return written
