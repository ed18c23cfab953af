"""The OpenAPI 3.1 document, from the table that the routes come from."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import partial
from http import HTTPStatus
from typing import Any

import msgspec

from reconciler import __version__
from reconciler.api.call import LARGEST
from reconciler.api.problems import FORM, JSON
from reconciler.api.table import EVENTS, LINES, PARAMETERS, PUBLIC, Operation
from reconciler.model.key import GVC_SCOPED, Kind

_PROBLEM = {
    "type": "object",
    "description": "The body of every error.",
    "required": ["status", "message", "code", "details", "id"],
    "properties": {
        "status": {"type": "integer", "description": "The HTTP status."},
        "message": {"type": "string", "description": "What is wrong, and what to do."},
        "code": {"type": "string", "description": "The status as a word."},
        "details": {"description": "Findings, or the two versions of a conflict; null without any."},
        "id": {"type": "string", "description": "The id of the request, as in the header X-Request-Id."},
    },
}
_OBJECT = {"type": "object", "description": "A manifest, or a part of it: see the schemas of the kinds."}
_BOUNDS: dict[str, dict[str, Any]] = {
    "limit": {"type": "integer", "minimum": 1, "maximum": 500},
    "last": {"type": "integer", "minimum": 1, "maximum": 1000},
    "lines": {"type": "integer", "minimum": 1, "maximum": 10000},
    "follow": {"type": "boolean"},
    "deleted": {"type": "boolean"},
    "wide": {"type": "boolean"},
    "blame": {"type": "boolean"},
    "tty": {"type": "boolean"},
    "rows": {"type": "integer", "minimum": 1, "maximum": 10000},
    "columns": {"type": "integer", "minimum": 1, "maximum": 10000},
    "after": {"type": "integer", "minimum": 0, "maximum": LARGEST},
    "timeoutSeconds": {"type": "integer", "minimum": 0, "maximum": 86400},
    "dryRun": {"type": "boolean"},
    "force": {"type": "boolean"},
}
_SCHEMAS: dict[str, dict[str, Any]] = {
    JSON: {"type": "object"},
    LINES: {"type": "object", "properties": {"time": {"type": "string"}, "line": {"type": "string"}}},
    EVENTS: {"type": "object", "properties": {name: {"type": "string"} for name in ("id", "event", "data")}},
}
"""Media type → what an answer of it is; for a stream, what each event is."""
_REFUSALS = {400: "The request is wrong.", 403: "The caller may not.", 404: "There is no such resource."}


def openapi_document(operations: Iterable[Operation], org: str) -> dict[str, Any]:
    """The document of ``operations``, for the server of ``org``."""
    operations = list(operations)
    bodies = [operation.body for operation in operations if operation.body is not None]
    _, components = msgspec.json.schema_components(bodies, ref_template="#/components/schemas/{name}")
    paths: dict[str, dict[str, Any]] = {}
    for entry in (*operations, *_general_operations(operations)):
        paths.setdefault(entry.path, {}).setdefault(entry.method.lower(), _describe_operation(entry, org))
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "reconciler",
            "version": __version__,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {
            "schemas": {"Problem": _PROBLEM, "Resource": _OBJECT, **components},
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
    }


def _general_operations(operations: Iterable[Operation]) -> Iterator[Operation]:
    """Operations on a kind, at the paths that name one: of the two, only the path with the word counts for clients."""
    general = [operation for operation in operations if "{kind}" in operation.path]
    for path in {operation.path for operation in operations}:
        for entry in general:
            if any(entry.path.replace("{kind}", kind) == path for kind in Kind):
                yield entry._replace(path=path)


def _describe_operation(operation: Operation, org: str) -> dict[str, Any]:
    document: dict[str, Any] = {
        "operationId": _make_operation_id(operation),
        "summary": operation.summary,
        "parameters": [
            *_path_parameters(operation.path, org),
            *map(partial(_query_parameter, operation), operation.parameters),
        ],
        "responses": _describe_responses(operation),
        "security": [] if operation.permission == PUBLIC else [{"bearer": []}],
    }
    if operation.idempotent:
        document["parameters"].append(
            {
                "name": "Idempotency-Key",
                "in": "header",
                "schema": {"type": "string"},
                "description": "A repeated request with the same key changes nothing again.",
            }
        )
    if operation.method in ("POST", "PUT", "PATCH"):
        name = "Resource" if operation.body is None else operation.body.__name__
        schema = {"$ref": f"#/components/schemas/{name}"}
        content = {media: {"schema": schema} for media in ((JSON, FORM) if operation.form else (JSON,))}
        document["requestBody"] = {"required": not operation.optional_body, "content": content}
    return document


def _make_operation_id(operation: Operation) -> str:
    """The method and the words of the path: the same in every version that has the operation."""
    words: list[str] = re.findall(r"[a-z]+|[A-Z][a-z]*", operation.path)
    return operation.method.lower() + "".join(word.capitalize() for word in words)


def _path_parameters(path: str, org: str) -> list[dict[str, Any]]:
    kinds = sorted(GVC_SCOPED) if "{gvc}" in path else sorted(kind for kind in Kind if kind is not Kind.ORG)
    schemas: dict[str, dict[str, Any]] = {
        "org": {"type": "string", "const": org},
        "kind": {"type": "string", "enum": [str(kind) for kind in kinds]},
    }
    return [
        {"name": name, "in": "path", "required": True, "schema": schemas.get(name, {"type": "string", "minLength": 1})}
        for name in re.findall(r"{([a-z]+)}", path)
    ]


def _query_parameter(operation: Operation, name: str) -> dict[str, Any]:
    schema = _BOUNDS.get(name, {"type": "string"})
    if name in operation.bounds:
        least, most = operation.bounds[name]
        schema = {**schema, "minimum": least, "maximum": most}
    return {"name": name, "in": "query", "description": PARAMETERS[name], "schema": schema}


def _describe_responses(operation: Operation) -> dict[str, Any]:
    good = {status: text for status, text in operation.answers.items() if status < HTTPStatus.BAD_REQUEST}
    bad = {status: text for status, text in operation.answers.items() if status >= HTTPStatus.BAD_REQUEST}
    responses: dict[str, Any] = {}
    for status, text in good.items():
        responses[str(status)] = {"description": text}
        if status != HTTPStatus.NO_CONTENT and status < HTTPStatus.MULTIPLE_CHOICES:
            responses[str(status)]["content"] = {
                media: {"schema": _SCHEMAS.get(media, {"type": "string"})}
                for media in (operation.media, *operation.forms)
            }
    error = {JSON: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    for status, text in sorted((_REFUSALS | bad).items()):
        responses[str(status)] = {"description": text, "content": error}
    responses["default"] = {"description": "Refused, or not possible now.", "content": error}
    return responses
