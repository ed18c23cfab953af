"""Four eyes: the authors of a change cannot approve it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from reconciler.access.rules import Caller
from reconciler.cli.options import get_operator_name
from tests.api.conftest import FILES
from tests.support.api import ORG, ApiSandbox, api_sandbox
from tests.support.sandbox import workload

SUPERUSERS = frozenset({"group/superusers"})
CO_AUTHORED = "Remove it\n\nCo-authored-by: Bob B <Bob@example.com>"
PEOPLE = """kind: user
name: operator
email: ada@example.com
"""


@pytest.fixture
def sandbox(tmp_path: Path) -> Iterator[ApiSandbox]:
    """A sandbox whose deletes wait for another person than their author, who is ada@example.com in each commit."""
    files = {**FILES, "people.yaml": PEOPLE}
    with api_sandbox(tmp_path, files, approval="deletes", approvalFourEyes=True) as made:
        yield made


def waiting(sandbox: ApiSandbox) -> str:
    """The digest of the steps that wait after a run."""
    sandbox.run("apply")
    [row] = sandbox.api.reader.records.approvals.hold_digests("") or [""]
    return row.rpartition("/")[2]


def approve(sandbox: ApiSandbox, principal: str, digest: str) -> tuple[int, str]:
    """Status and message of an approval by ``principal``, who may do everything."""
    token = sandbox.api.store.add_session(Caller(principal, SUPERUSERS), 3600.0)
    headers = {"Authorization": f"Bearer {token}"}
    answer = sandbox.client(None).request("POST", f"{ORG}/-approve", json={"digest": digest}, headers=headers)
    return answer.status_code, answer.json()["message"]


def test_a_plan_names_who_may_approve_it(sandbox: ApiSandbox) -> None:
    sandbox.repo.commit({"shop/api.yaml": None})
    assert waiting(sandbox)
    who = "an operator of the host, but no author of the change"
    for form, group in (("text/plain", "superusers"), ("text/markdown", "`superusers`")):
        plan = sandbox.client().request("GET", f"{ORG}/source/main/-plan", headers={"Accept": form}).text
        assert f"Who may approve: the group {group}, or {who}" in plan
    sandbox.repo.commit({"shop/api.yaml": FILES["shop/api.yaml"]})
    plan = sandbox.client().request("GET", f"{ORG}/source/main/-plan", headers={"Accept": "text/plain"}).text
    assert "Who may" not in plan


def test_an_author_cannot_approve_and_another_person_can(sandbox: ApiSandbox) -> None:
    sandbox.repo.commit({"shop/api.yaml": None})
    digest = waiting(sandbox)
    assert digest
    refused = "made the change of workload/shop/api; another person approves it (approvalFourEyes)"
    assert approve(sandbox, "user/ada@example.com", digest) == (409, f"user/ada@example.com {refused}")
    assert approve(sandbox, "user/Ada@Example.com", digest)[0] == 409
    assert approve(sandbox, "user/operator", digest) == (409, f"user/operator {refused}"), "by the address of the user"
    code, message = approve(sandbox, "user/bob@example.com", digest)
    assert (code, message.partition(",")[0]) == (200, f"approved {digest[:12]} as user/bob@example.com")
    last = sandbox.client().get(f"{ORG}/-audit")["items"][-2:]
    assert [(each["principal"], each["outcome"]) for each in last] == [
        ("user/operator", 409),
        ("user/bob@example.com", 200),
    ]


def test_a_co_author_is_an_author(sandbox: ApiSandbox) -> None:
    sandbox.repo.commit({"shop/api.yaml": None}, CO_AUTHORED)
    digest = waiting(sandbox)
    assert approve(sandbox, "user/bob@example.com", digest)[0] == 409
    assert approve(sandbox, "user/eve@example.com", digest)[0] == 200


def test_commits_to_other_files_do_not_count(sandbox: ApiSandbox) -> None:
    sandbox.repo.commit({"shop/api.yaml": None})
    sandbox.repo.commit({"shop/web.yaml": workload("web", more="tags: {team: web, tier: '1'}\n")}, CO_AUTHORED)
    digest = waiting(sandbox)
    assert approve(sandbox, "user/ada@example.com", digest)[0] == 409
    assert approve(sandbox, "user/bob@example.com", digest)[0] == 200


def test_a_change_through_the_api_is_that_of_its_caller(sandbox: ApiSandbox) -> None:
    token = sandbox.api.store.add_session(Caller("user/bob@example.com", SUPERUSERS), 3600.0)
    headers = {"Authorization": f"Bearer {token}"}
    answer = sandbox.client(None).request("DELETE", f"{ORG}/gvc/shop/workload/api", headers=headers)
    assert answer.status_code == 202, answer.text
    digest = waiting(sandbox)
    assert approve(sandbox, "user/bob@example.com", digest)[0] == 409
    assert approve(sandbox, "user/ada@example.com", digest)[0] == 200


def test_the_command_on_the_host_refuses_too(sandbox: ApiSandbox) -> None:
    sandbox.repo.commit({"me.yaml": PEOPLE.replace("operator", get_operator_name())})
    sandbox.run("apply")
    sandbox.repo.commit({"shop/api.yaml": None})
    done = sandbox.run("approve", waiting(sandbox))
    assert done.returncode != 0
    assert f"{get_operator_name()} made the change of workload/shop/api" in done.stderr


def test_after_a_rollback_the_operator_who_made_it_cannot_approve(sandbox: ApiSandbox) -> None:
    first = sandbox.repo.git("rev-parse", "main")
    sandbox.repo.commit({"shop/late.yaml": workload("late")}, CO_AUTHORED)
    sandbox.run("apply")
    token = sandbox.api.store.add_session(Caller("user/eve@example.com", SUPERUSERS), 3600.0)
    answer = sandbox.client(None).request(
        "POST", f"{ORG}/source/main/-rollback", json={"revision": first}, headers={"Authorization": f"Bearer {token}"}
    )
    assert answer.status_code == 200, answer.text
    digest = waiting(sandbox)
    code, message = approve(sandbox, "user/eve@example.com", digest)
    assert (code, "rolled main back" in message) == (409, True)
    assert approve(sandbox, "user/bob@example.com", digest)[0] == 200


def test_an_outdated_digest_is_refused(sandbox: ApiSandbox) -> None:
    sandbox.repo.commit({"shop/api.yaml": None})
    digest = waiting(sandbox)
    sandbox.repo.commit({"shop/web.yaml": None})
    code, message = approve(sandbox, "user/bob@example.com", digest)
    assert (code, "not those that wait now" in message) == (409, True)
