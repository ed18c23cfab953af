"""The OpenAPI document: valid, complete, and true to what the server answers."""

from __future__ import annotations

from typing import Any

import msgspec
from openapi_spec_validator import OpenAPIV31SpecValidator

from reconciler.api.app import OPERATIONS, ROUTES
from reconciler.api.table import PARAMETERS
from tests.support.api import ORG, ApiSandbox


def example(path: str) -> str:
    """A path without parameters."""
    names = {"org": "acme", "gvc": "shop", "name": "web", "id": "1", "location": "here", "digest": "00000000"}
    return path.format_map({**names, "kind": "workload" if "{gvc}" in path else "secret"})


def document(sandbox: ApiSandbox) -> dict[str, Any]:
    """The served document, which needs no credential."""
    found: dict[str, Any] = sandbox.client(None).get("/openapi.json")
    return found


def test_it_is_valid_and_has_every_operation(sandbox: ApiSandbox) -> None:
    openapi = document(sandbox)
    OpenAPIV31SpecValidator(openapi).validate()
    listed = {(method.upper(), path) for path, methods in openapi["paths"].items() for method in methods}
    own = {(operation.method, operation.path) for operation in OPERATIONS}
    assert own <= listed
    assert len(own) == len(OPERATIONS)
    # A path with a word in place of a kind has what is general for all kinds, too.
    user = "/org/{org}/user/{name}"
    assert {method for method, path in listed if path == user} == {"GET", "PUT", "PATCH", "DELETE"}
    for method, path in listed:
        assert ROUTES.find(method, example(path)), (method, path)
    ids = [method["operationId"] for methods in openapi["paths"].values() for method in methods.values()]
    assert len(ids) == len(set(ids))


def test_every_parameter_is_explained_and_used() -> None:
    assert {name for each in OPERATIONS for name in each.parameters} == set(PARAMETERS)


def test_every_bound_of_a_page_is_that_of_the_server(sandbox: ApiSandbox) -> None:
    for path, methods in document(sandbox)["paths"].items():
        for parameter in methods.get("get", {}).get("parameters", ()):
            if parameter["name"] not in ("last", "limit") or path.endswith("/-record"):
                continue
            url = example(path).replace("secret/web", "secret/db").replace("source/web", "source/main")
            least, most = parameter["schema"]["minimum"], parameter["schema"]["maximum"]
            for value, fits in ((least, True), (most, True), (most + 1, False), (least - 1, False)):
                about = "&key=workload/shop/web" if path.endswith("/-usage") else ""
                answer = sandbox.client().request("GET", f"{url}?{parameter['name']}={value}{about}")
                assert (f"{parameter['name']} is a number" not in answer.text) is fits, (url, value, answer.text)


def test_it_shows_no_value_of_a_secret(sandbox: ApiSandbox) -> None:
    assert b"hunter" not in msgspec.json.encode(document(sandbox))


def test_every_read_answers_as_it_is_described(sandbox: ApiSandbox) -> None:
    names = {"{gvc}": "shop", "{location}": "here", "{id}": "none"}
    for operation in OPERATIONS:
        if operation.method != "GET":
            continue
        path = operation.path.replace("{org}", "acme")
        kind, name = ("serviceaccount", "ci") if "/serviceaccount/" in path else ("workload", "web")
        if "{gvc}" not in path and kind == "workload":
            kind, name = ("source", "main") if "/source/" in path else ("secret", "db")
        for word, value in {**names, "{kind}": kind, "{name}": name}.items():
            path = path.replace(word, value)
        # Without it, a watch would last.
        answer = sandbox.client().request("GET", f"{path}?timeoutSeconds=0" if path.endswith("/-watch") else path)
        known = {str(status) for status in (*operation.answers, 400, 403, 404)}
        assert str(answer.status_code) in known, (path, answer.text)
        assert answer.headers["content-type"].split(";")[0] == (
            operation.media if answer.is_success else "application/json"
        )


def test_a_method_that_is_not_listed_is_refused(sandbox: ApiSandbox) -> None:
    for method in ("PUT", "PATCH", "DELETE"):
        answer = sandbox.client().request(method, f"{ORG}/workload")
        assert answer.status_code == 405
        assert "GET" in answer.headers["allow"]


def test_only_operations_that_can_be_repeated_list_the_idempotency_key(sandbox: ApiSandbox) -> None:
    paths = document(sandbox)["paths"]
    for declared in OPERATIONS:
        operation = paths[declared.path][declared.method.lower()]
        listed = any(parameter["name"] == "Idempotency-Key" for parameter in operation["parameters"])
        assert listed is declared.idempotent
    assert {operation.method for operation in OPERATIONS if operation.idempotent} == {"POST", "PUT", "PATCH", "DELETE"}
