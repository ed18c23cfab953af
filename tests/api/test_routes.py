"""Which operation a request means."""

from __future__ import annotations

import pytest

from reconciler.api.app import OPERATIONS, ROUTES
from reconciler.api.problems import Problem

PATHS = [
    ("GET", "/org/a/secret/db/-reveal", "/org/{org}/secret/{name}/-reveal", {"org": "a", "name": "db"}),
    ("GET", "/org/a/secret/db", "/org/{org}/{kind}/{name}", {"org": "a", "kind": "secret", "name": "db"}),
    ("HEAD", "/org/a/gvc/s/workload", "/org/{org}/gvc/{gvc}/{kind}", {"org": "a", "gvc": "s", "kind": "workload"}),
    ("POST", "/org/a/sources", "/org/{org}/{kind}", {"org": "a", "kind": "sources"}),
    ("PATCH", "/org/a/user/ann", "/org/{org}/{kind}/{name}", {"org": "a", "kind": "user", "name": "ann"}),
]


@pytest.mark.parametrize(("method", "path", "expected", "parameters"), PATHS)
def test_a_word_counts_before_a_name(method: str, path: str, expected: str, parameters: dict[str, str]) -> None:
    found = ROUTES.find(method, path)
    assert (found.operation.path, found.parameters) == (expected, parameters)


def test_every_operation_is_found_by_its_own_path() -> None:
    for operation in OPERATIONS:
        names = {"org": "a", "gvc": "b", "kind": "policy", "name": "c", "id": "d", "location": "e", "digest": "f"}
        assert ROUTES.find(operation.method, operation.path.format_map(names)).operation is operation


REFUSED = [
    ("GET", "/org/a/policy/-x", 404),
    ("GET", "/org/a/", 404),
    ("GET", "/org//policy", 404),
    ("GET", "", 404),
    ("DELETE", "/org/a/gvc/b/workload/c/deployment", 405),
    ("POST", "/org/a/source", 405),
    ("DELETE", "/org/a/sources", 404),
    ("PUT", "/org/a/gvc/b/nothing", 404),
]


@pytest.mark.parametrize(("method", "path", "status"), REFUSED)
def test_other_paths_and_methods_are_refused(method: str, path: str, status: int) -> None:
    with pytest.raises(Problem) as refused:
        ROUTES.find(method, path)
    assert refused.value.status == status
    assert (refused.value.headers or {}).get("Allow") == ("GET, HEAD" if status == 405 else None)
