"""Four eyes: the authors of a change cannot approve it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from reconciler.access.rules import Caller
from reconciler.cli.options import get_operator_name
from tests.api.conftest import FILES
from tests.support.api import ORG, ApiSite, api_site
from tests.support.sandbox import workload

SUPERUSERS = frozenset({"group/superusers"})
CO_AUTHORED = "Remove it\n\nCo-authored-by: Bob B <Bob@example.com>"
PEOPLE = """kind: user
name: operator
email: ada@example.com
"""


@pytest.fixture
def site(tmp_path: Path) -> Iterator[ApiSite]:
    """A site whose deletes wait for another person than their author, who is ada@example.com in each commit."""
    files = {**FILES, "people.yaml": PEOPLE}
    with api_site(tmp_path, files, approval="deletes", approvalFourEyes=True) as made:
        yield made


def waiting(site: ApiSite) -> str:
    """The digest of the steps that wait after a run."""
    site.run("apply")
    [row] = site.api.reader.records.approvals.hold_digests("") or [""]
    return row.rpartition("/")[2]


def approve(site: ApiSite, principal: str, digest: str) -> tuple[int, str]:
    """Status and message of an approval by ``principal``, who may do everything."""
    token = site.api.store.add_session(Caller(principal, SUPERUSERS), 3600.0)
    headers = {"Authorization": f"Bearer {token}"}
    answer = site.client(None).request("POST", f"{ORG}/-approve", json={"digest": digest}, headers=headers)
    return answer.status_code, answer.json()["message"]


def test_an_author_cannot_approve_and_another_person_can(site: ApiSite) -> None:
    site.repo.commit({"shop/api.yaml": None})
    digest = waiting(site)
    assert digest
    refused = "made the change of workload/shop/api; another person approves it (approvalFourEyes)"
    assert approve(site, "user/ada@example.com", digest) == (409, f"user/ada@example.com {refused}")
    assert approve(site, "user/Ada@Example.com", digest)[0] == 409
    assert approve(site, "user/operator", digest) == (409, f"user/operator {refused}"), "by the address of the user"
    code, message = approve(site, "user/bob@example.com", digest)
    assert (code, message.partition(",")[0]) == (200, f"approved {digest} as user/bob@example.com")
    last = site.client().get(f"{ORG}/-audit")["items"][-2:]
    assert [(each["principal"], each["outcome"]) for each in last] == [
        ("user/operator", 409),
        ("user/bob@example.com", 200),
    ]


def test_a_co_author_is_an_author(site: ApiSite) -> None:
    site.repo.commit({"shop/api.yaml": None}, CO_AUTHORED)
    digest = waiting(site)
    assert approve(site, "user/bob@example.com", digest)[0] == 409
    assert approve(site, "user/eve@example.com", digest)[0] == 200


def test_commits_to_other_files_do_not_count(site: ApiSite) -> None:
    site.repo.commit({"shop/api.yaml": None})
    site.repo.commit({"shop/web.yaml": workload("web", more="tags: {team: web, tier: '1'}\n")}, CO_AUTHORED)
    digest = waiting(site)
    assert approve(site, "user/ada@example.com", digest)[0] == 409
    assert approve(site, "user/bob@example.com", digest)[0] == 200


def test_a_change_through_the_api_is_that_of_its_caller(site: ApiSite) -> None:
    token = site.api.store.add_session(Caller("user/bob@example.com", SUPERUSERS), 3600.0)
    headers = {"Authorization": f"Bearer {token}"}
    answer = site.client(None).request("DELETE", f"{ORG}/gvc/shop/workload/api", headers=headers)
    assert answer.status_code == 202, answer.text
    digest = waiting(site)
    assert approve(site, "user/bob@example.com", digest)[0] == 409
    assert approve(site, "user/ada@example.com", digest)[0] == 200


def test_the_command_on_the_host_refuses_too(site: ApiSite) -> None:
    site.repo.commit({"me.yaml": PEOPLE.replace("operator", get_operator_name())})
    site.run("apply")
    site.repo.commit({"shop/api.yaml": None})
    done = site.run("approve", waiting(site))
    assert done.returncode != 0
    assert f"{get_operator_name()} made the change of workload/shop/api" in done.stderr


def test_after_a_rollback_the_operator_who_made_it_cannot_approve(site: ApiSite) -> None:
    first = site.repo.git("rev-parse", "main")
    site.repo.commit({"shop/late.yaml": workload("late")}, CO_AUTHORED)
    site.run("apply")
    token = site.api.store.add_session(Caller("user/eve@example.com", SUPERUSERS), 3600.0)
    answer = site.client(None).request(
        "POST", f"{ORG}/source/main/-rollback", json={"revision": first}, headers={"Authorization": f"Bearer {token}"}
    )
    assert answer.status_code == 200, answer.text
    digest = waiting(site)
    code, message = approve(site, "user/eve@example.com", digest)
    assert (code, "rolled main back" in message) == (409, True)
    assert approve(site, "user/bob@example.com", digest)[0] == 200


def test_an_outdated_digest_is_refused(site: ApiSite) -> None:
    site.repo.commit({"shop/api.yaml": None})
    digest = waiting(site)
    site.repo.commit({"shop/web.yaml": None})
    code, message = approve(site, "user/bob@example.com", digest)
    assert (code, "not those that wait now" in message) == (409, True)
