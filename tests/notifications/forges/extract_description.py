"""Takes the operations that we use from the published description of an API, without its words.

    python -m tests.notifications.forges.extract_description github api.github.com.json 23.0.2 > github.json

GitHub's is in the npm package `@octokit/openapi`, GitLab's in its repository, as doc/api/openapi/openapi_v3.yaml,
Gitea's in its Go module, as templates/swagger/v1_json.tmpl, that of Bitbucket Data Center on the pages of its vendor.
That of Bitbucket Cloud is not taken from a file: it says the same about the operations that we use, in our own words,
with the parameters, fields, values and statuses of the description that the npm package `bitbucket` is made of, and the
limits of its documentation. GitLab's description has no limits either: those of its documentation are added.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import yaml

_MERGE_REQUESTS = "/api/v4/projects/{id}/merge_requests"
_DEPLOYMENTS = "/api/v4/projects/{id}/deployments"
_SERVER = "/api/latest/projects/{projectKey}/repos/{repositorySlug}"
OPERATIONS = {
    "github": (
        "GET /repos/{owner}/{repo}",
        "GET /repos/{owner}/{repo}/installation",
        "POST /app/installations/{installation_id}/access_tokens",
        "GET /repos/{owner}/{repo}/commits/{ref}/check-runs",
        "POST /repos/{owner}/{repo}/check-runs",
        "PATCH /repos/{owner}/{repo}/check-runs/{check_run_id}",
        "POST /repos/{owner}/{repo}/statuses/{sha}",
        "GET /repos/{owner}/{repo}/deployments",
        "POST /repos/{owner}/{repo}/deployments",
        "GET /repos/{owner}/{repo}/deployments/{deployment_id}/statuses",
        "POST /repos/{owner}/{repo}/deployments/{deployment_id}/statuses",
        "GET /repos/{owner}/{repo}/pulls",
        "GET /repos/{owner}/{repo}/pulls/{pull_number}",
        "GET /repos/{owner}/{repo}/issues/{issue_number}/comments",
        "POST /repos/{owner}/{repo}/issues/{issue_number}/comments",
        "PATCH /repos/{owner}/{repo}/issues/comments/{comment_id}",
    ),
    "gitlab": (
        "GET /api/v4/projects/{id}",
        "POST /api/v4/projects/{id}/statuses/{sha}",
        f"GET {_MERGE_REQUESTS}",
        f"GET {_MERGE_REQUESTS}/{{merge_request_iid}}",
        f"GET {_MERGE_REQUESTS}/{{noteable_id}}/notes",
        f"POST {_MERGE_REQUESTS}/{{noteable_id}}/notes",
        f"PUT {_MERGE_REQUESTS}/{{noteable_id}}/notes/{{note_id}}",
        f"GET {_DEPLOYMENTS}",
        f"POST {_DEPLOYMENTS}",
        f"PUT {_DEPLOYMENTS}/{{deployment_id}}",
    ),
    "gitea": (
        "GET /repos/{owner}/{repo}",
        "POST /repos/{owner}/{repo}/statuses/{sha}",
        "GET /repos/{owner}/{repo}/pulls",
        "GET /repos/{owner}/{repo}/pulls/{index}",
        "GET /repos/{owner}/{repo}/issues/{index}/comments",
        "POST /repos/{owner}/{repo}/issues/{index}/comments",
        "PATCH /repos/{owner}/{repo}/issues/comments/{id}",
    ),
    "bitbucket-server": (
        f"GET {_SERVER}",
        f"POST {_SERVER}/commits/{{commitId}}/builds",
        f"GET {_SERVER}/pull-requests",
        f"GET {_SERVER}/pull-requests/{{pullRequestId}}",
        f"GET {_SERVER}/pull-requests/{{pullRequestId}}/activities",
        f"POST {_SERVER}/pull-requests/{{pullRequestId}}/comments",
        f"GET {_SERVER}/pull-requests/{{pullRequestId}}/comments/{{commentId}}",
        f"PUT {_SERVER}/pull-requests/{{pullRequestId}}/comments/{{commentId}}",
    ),
}
DECISIVE = (
    "type", "enum", "format", "properties", "required", "items", "nullable", "oneOf", "anyOf", "allOf", "default",
    "additionalProperties", "maximum", "minimum", "maxLength", "minLength", "maxItems", "minItems", "pattern",
)  # fmt: skip
"""What decides about a value."""
LIMITS = {
    "gitlab": {
        "description": {"maxLength": 255},
        "target_url": {"maxLength": 255},
        "body": {"maxLength": 1_000_000},
        "per_page": {"minimum": 1, "maximum": 100},
    }
}
"""What only the documentation of a forge says of parameters and fields, by their names."""
DEEPEST = 12
SHALLOW = {"bitbucket-server": 2}
"""The levels of a schema that are taken, fewer for a forge whose comments have a whole pull request in them."""


def main() -> None:
    """Print the operations of a forge."""
    forge, file, version = sys.argv[1:]
    document = read_document(file)
    levels = SHALLOW.get(forge, DEEPEST)
    operations = [extract_operation(document, *name.split(" "), levels) for name in OPERATIONS[forge]]
    for operation in operations:
        add_limits(operation, LIMITS.get(forge, {}))
    info = document["info"]
    license_name = info.get("license", {}).get("name", "")
    taken = {"title": info["title"], "version": version, "license": license_name, "operations": operations}
    json.dump(taken, sys.stdout, indent=1, sort_keys=True)
    print()


def read_document(file: str) -> dict[str, Any]:
    """The description in ``file``: JSON, YAML, or a template of JSON."""
    text = Path(file).read_text()
    if file.endswith(".yaml"):
        return yaml.load(text, yaml.CSafeLoader)
    return json.loads(re.sub(r"\{\{[^}]*\}\}", "x", text) if file.endswith(".tmpl") else text)


def add_limits(operation: dict[str, Any], limits: dict[str, dict[str, Any]]) -> None:
    """Add ``limits`` to the parameters and the fields of ``operation`` that have their names."""
    schemas = {parameter["name"]: parameter["schema"] for parameter in operation["parameters"]}
    schemas |= (operation["body"] or {}).get("properties", {})
    for name in schemas.keys() & limits.keys():
        schemas[name].update(limits[name])


def extract_operation(document: dict[str, Any], method: str, path: str, levels: int = DEEPEST) -> dict[str, Any]:
    """One operation: its parameters, ``levels`` of its body, and the statuses of its answers."""
    operation = document["paths"][path][method.lower()]
    parameters, body = [], None
    for written in [*operation.get("parameters", []), *document["paths"][path].get("parameters", [])]:
        parameter = resolve(document, written)
        if parameter["in"] == "body":
            body = simplify(document, parameter["schema"], levels)
        elif parameter["in"] in ("path", "query"):
            schema = simplify(document, parameter.get("schema", parameter), levels)
            required = parameter.get("required") is True
            schema.pop("required", None)
            parameters.append(
                {"name": parameter["name"], "in": parameter["in"], "required": required, "schema": schema}
            )
    if "requestBody" in operation:
        content = resolve(document, operation["requestBody"])["content"]
        body = simplify(document, content.get("application/json", content.get("*/*"))["schema"], levels)
    answers = sorted(status for status in operation["responses"] if status.isdigit())
    return {"method": method, "path": path, "parameters": parameters, "body": body, "answers": answers}


def simplify(document: dict[str, Any], schema: Any, levels: int) -> Any:
    """``levels`` of ``schema`` with its references resolved, and without its words."""
    if isinstance(schema, list):
        return [simplify(document, one, levels - 1) for one in schema]
    if not isinstance(schema, dict) or levels < 0:
        return {} if isinstance(schema, dict) else schema
    schema = resolve(document, schema)
    rest = {name: schema[name] for name in DECISIVE if name in schema}
    for name in ("items", "additionalProperties", "oneOf", "anyOf", "allOf"):
        if name in rest:
            rest[name] = simplify(document, rest[name], levels - 1)
    if "properties" in rest:
        rest["properties"] = {name: simplify(document, one, levels - 1) for name, one in rest["properties"].items()}
    return rest


def resolve(document: dict[str, Any], value: dict[str, Any]) -> dict[str, Any]:
    """``value``, or what it refers to."""
    while "$ref" in value:
        target: Any = document
        for name in value["$ref"].removeprefix("#/").split("/"):
            target = target[name.replace("~1", "/").replace("~0", "~")]
        value = target
    return value


if __name__ == "__main__":
    main()
