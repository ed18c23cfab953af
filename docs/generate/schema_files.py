"""The generated schema files: the manifest of any kind, and the catalogue for editors."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from reconciler.documents.schema.loader import KIND_NAMES, find_shipped_path, schema_path
from reconciler.model.revision import SUFFIXES

SCHEMAS = find_shipped_path("schemas")
Json = dict[str, Any]


def files() -> dict[str, str]:
    """File name → text of every generated schema file."""
    return {f"{name}.json": json.dumps(made, indent=2) + "\n" for name, made in _made().items()}


def _made() -> Mapping[str, Json]:
    return {"manifest": _manifest(), "catalog": _catalog()}


def _manifest() -> Json:
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Manifest",
        "description": "A manifest of any kind; the schema of its kind applies, so a file may contain several kinds.",
        "type": "object",
        "required": ["kind"],
        "properties": {
            "kind": {
                "$ref": "#/$defs/kind",
                "title": "Kind",
                "description": "The kind of the resource.",
                "examples": ["workload"],
            }
        },
        "allOf": [
            {
                "if": {"required": ["kind"], "properties": {"kind": {"const": name}}},
                "then": {"$ref": f"{name}.json"},
            }
            for name in KIND_NAMES
        ],
        "$defs": {"kind": {"type": "string", "enum": sorted(KIND_NAMES)}},
    }


def _catalog() -> Json:
    manifests = {
        "name": "Reconciler manifest",
        "description": _manifest()["description"],
        "fileMatch": [f"**/manifests/**/*{suffix}" for suffix in SUFFIXES],
        "url": "manifest.json",
    }
    settings = {
        "name": "Reconciler settings",
        "description": _written("settings")["description"],
        "fileMatch": ["reconciler.yaml", "**/etc/reconciler/*.yaml"],
        "url": "settings.json",
    }
    return {
        "$schema": "https://json.schemastore.org/schema-catalog.json",
        "version": 1,
        "schemas": [manifests, *map(_entry, KIND_NAMES), settings],
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
