"""Changes of resources whose manifests are in JSON: the file stays JSON, and stays as it is written elsewhere."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.api.conftest import FILES
from tests.support.api import ORG, ApiSandbox, api_sandbox
from tests.support.sandbox import workload

APPLY, WORKLOADS = f"{ORG}/-apply", f"{ORG}/gvc/shop/workload"
ALL, ONE = "shop/all.json", "shop/one.json"


def in_json(name: str, more: str = "") -> dict[str, Any]:
    """The manifest of a workload."""
    value: dict[str, Any] = yaml.safe_load(workload(name, more=more))
    return value


LISTED = json.dumps([in_json("api"), in_json("web", "tags: {team: web}\n"), in_json("old")], indent=4) + "\n"
SINGLE = json.dumps(in_json("single"), indent="\t") + "\n"
JSON_FILES = {
    "shop/gvc.yaml": FILES["shop/gvc.yaml"],
    "access.yaml": FILES["access.yaml"],
    ALL: LISTED,
    ONE: SINGLE,
    "package.json": '{"name": "web"}',
}


@pytest.fixture
def sandbox(tmp_path: Path) -> Iterator[ApiSandbox]:
    """A sandbox of its own, whose Git is written."""
    with api_sandbox(tmp_path, JSON_FILES) as made:
        yield made


def send(sandbox: ApiSandbox, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
    """Status and body of a request by a superuser."""
    answer = sandbox.client().request(method, path, json=body, headers=headers)
    return answer.status_code, answer.json()


def file(sandbox: ApiSandbox, path: str) -> str:
    """A file at the tip of the branch."""
    return sandbox.repo.git("show", f"main:{path}").rstrip("\n") + "\n"


def test_a_patch_changes_its_lines_only(sandbox: ApiSandbox) -> None:
    code, answer = send(sandbox, "PATCH", f"{WORKLOADS}/web", {"tags": {"tier": "front"}})
    assert (code, answer["change"]["files"]) == (200, [ALL])
    before = '"tags": {\n            "team": "web"\n'
    assert before in LISTED
    expected = LISTED.replace(before, before[:-1] + ',\n            "tier": "front"\n')
    assert file(sandbox, ALL) == expected
    code, answer = send(sandbox, "PATCH", f"{WORKLOADS}/single", {"description": "The only one"})
    assert code == 200, answer
    assert file(sandbox, ONE) == SINGLE.removesuffix("\n}\n") + ',\n\t"description": "The only one"\n}\n'
    assert sandbox.run("apply").returncode == 0
    assert send(sandbox, "GET", f"{WORKLOADS}/single")[1]["description"] == "The only one"


def test_what_is_as_it_was_makes_no_commit(sandbox: ApiSandbox) -> None:
    tip = sandbox.repo.git("rev-parse", "main")
    code, answer = send(sandbox, "PATCH", f"{WORKLOADS}/web", {"tags": {"team": "web"}})
    assert code == 200, answer
    assert sandbox.repo.git("rev-parse", "main") == tip


def test_several_documents_of_a_file_change_in_one_commit(sandbox: ApiSandbox) -> None:
    items = [{**in_json(name), "gvc": "shop", "description": f"The {name}"} for name in ("api", "web", "new")]
    code, answer = send(sandbox, "POST", APPLY, {"items": items, "delete": ["//gvc/shop/workload/old"]})
    assert code == 200, answer
    values = {each["name"]: each for each in json.loads(file(sandbox, ALL))}
    assert {name: each.get("description") for name, each in values.items()} == {"api": "The api", "web": "The web"}
    assert yaml.safe_load(file(sandbox, "shop/workload/new.yaml"))["description"] == "The new"
    assert sandbox.run("apply").returncode == 0


def test_a_file_goes_with_its_last_document(sandbox: ApiSandbox) -> None:
    for name in ("api", "web", "old", "single"):
        code, answer = send(sandbox, "DELETE", f"{WORKLOADS}/{name}")
        assert code in (200, 202), answer
    left = sandbox.repo.git("ls-tree", "-r", "--name-only", "main").split()
    assert left == ["access.yaml", "package.json", "shop/gvc.yaml"]


def test_a_refused_change_names_the_field_of_its_document(sandbox: ApiSandbox) -> None:
    code, answer = send(sandbox, "PATCH", f"{WORKLOADS}/web", {"spec": {"identityLink": "//identity/none"}})
    assert code == 400
    [finding] = answer["details"] if isinstance(answer["details"], list) else answer["details"]["findings"]
    assert (finding["path"], finding["field"]) == (ALL, "/spec/identityLink")
    assert file(sandbox, ALL) == LISTED


def test_two_writers_of_one_file_do_not_disturb_each_other(sandbox: ApiSandbox) -> None:
    tag = sandbox.client().request("GET", f"{WORKLOADS}/web").headers["etag"]
    changed = json.loads(LISTED)
    changed[0]["description"] = "By another"
    sandbox.repo.commit({ALL: json.dumps(changed)})
    code, answer = send(sandbox, "PATCH", f"{WORKLOADS}/web", {"tags": {"tier": "front"}}, **{"If-Match": tag})
    assert code == 200, answer
    values = json.loads(file(sandbox, ALL))
    assert (values[0]["description"], values[1]["tags"]) == ("By another", {"team": "web", "tier": "front"})


def test_two_writers_of_one_field_are_in_conflict(sandbox: ApiSandbox) -> None:
    tag = sandbox.client().request("GET", f"{WORKLOADS}/web").headers["etag"]
    changed = json.loads(LISTED)
    changed[1]["tags"]["team"] = "blue"
    sandbox.repo.commit({ALL: json.dumps(changed)})
    code, answer = send(sandbox, "PATCH", f"{WORKLOADS}/web", {"tags": {"team": "green"}}, **{"If-Match": tag})
    assert code in (409, 412), answer
    assert "blue" in file(sandbox, ALL)
