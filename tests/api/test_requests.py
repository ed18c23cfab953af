"""Requests of operators and commands: rows in the records, in the name of the caller."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.api.conftest import FILES
from tests.support.api import ORG, READER_PEER, ApiSite, api_site

WEB = f"{ORG}/gvc/shop/workload/web"
JOB = f"{ORG}/gvc/shop/workload/job"
CRON = """kind: workload
name: job
spec:
  type: cron
  containers: [{name: main, image: "//image/job:1"}]
  job: {schedule: "0 3 * * *"}
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiSite]:
    """A site with a cron workload too."""
    with api_site(tmp_path_factory.mktemp("requests"), {**FILES, "shop/job.yaml": CRON}) as made:
        yield made


def post(site: ApiSite, path: str, body: Any = None) -> tuple[int, Any]:
    """Status and body of a POST by a superuser."""
    answer = site.client().request("POST", path, json={} if body is None else body)
    return answer.status_code, answer.json()


def test_a_command_is_requested_read_and_cancelled(site: ApiSite) -> None:
    code, made = post(site, f"{JOB}/-command", {"type": "runCronWorkload", "spec": {"location": "here"}})
    assert (code, made["type"], made["lifecycleStage"]) == (201, "runCronWorkload", "pending")
    place = f"{JOB}/-command/{made['id']}"
    assert site.client().get(place)["createdBy"] == "user/root"
    assert site.client().request("DELETE", place).status_code == 200
    assert site.client().get(place)["lifecycleStage"] == "cancelled"
    assert site.client().request("DELETE", place).status_code == 409


def test_a_run_without_a_location_is_for_all(site: ApiSite) -> None:
    code, made = post(site, f"{JOB}/-command", {"type": "runCronWorkload"})
    assert code == 201
    assert [each["spec"]["location"] for each in made["items"]] == ["here", "there"]


WRONG = [
    (JOB, {"type": "runCronWorkload", "spec": {"location": "moon"}}, 400, "workload/shop/job is not at moon"),
    (JOB, {"type": "explode"}, 400, "a workload has no command 'explode'"),
    (JOB, {"type": "runCronWorkload", "spec": {"location": "here", "speed": 3}}, 400, ""),
    (WEB, {"type": "runCronWorkload", "spec": {"location": "here"}}, 400, ""),
    (f"{ORG}/secret/db", {"type": "runCronWorkload"}, 404, "a secret takes no commands"),
    (f"{ORG}/gvc/shop/workload/none", {"type": "runCronWorkload"}, 404, "there is no workload/shop/none"),
]


@pytest.mark.parametrize(("item", "body", "code", "message"), WRONG)
def test_a_wrong_command_is_refused(site: ApiSite, item: str, body: Any, code: int, message: str) -> None:
    found, answer = post(site, f"{item}/-command", body)
    assert found == code, answer
    assert answer["message"].startswith(message)


def test_a_resource_is_suspended_and_resumed(site: ApiSite) -> None:
    code, answer = post(site, f"{WEB}/-suspend", {"reason": "debugging", "until": "2026-02-01T00:00:00Z"})
    assert (code, answer["message"].split(";")[0]) == (200, "workload/shop/web is suspended until 2026-02-01T00:00:00Z")
    conditions = {each["type"]: each for each in site.client().get(WEB)["status"]["conditions"]}
    assert "user/root" in conditions["Suspended"]["message"]
    assert post(site, f"{WEB}/-resume")[0] == 200
    assert post(site, f"{WEB}/-resume")[0] == 409
    assert post(site, f"{WEB}/-suspend", {"until": "2025-01-01T00:00:00Z"})[0] == 400


def test_a_source_is_suspended_and_rolled_back(site: ApiSite) -> None:
    source = f"{ORG}/source/main"
    assert post(site, f"{source}/-suspend")[0] == 200
    assert post(site, f"{source}/-resume")[0] == 200
    assert [each["outcome"] for each in site.client().get(f"{source}/-runs")["items"]] == ["applied"]
    assert post(site, f"{source}/-rollback", {"revision": "HEAD~7"})[0] in (404, 409, 503)
    assert post(site, f"{ORG}/source/other/-suspend")[0] == 404
    assert [each["name"] for each in site.client().get(f"{ORG}/source")["items"]] == ["main"]
    # No daemon runs here.
    assert post(site, f"{source}/-sync")[0] == 503


def test_what_the_state_refuses_is_a_conflict(site: ApiSite) -> None:
    assert post(site, f"{WEB}/-retry")[0] == 409
    assert post(site, f"{WEB}/-restart")[0] == 409
    assert post(site, f"{WEB}/-hold", {"seconds": 5})[0] == 409
    assert post(site, f"{ORG}/-approve", {"digest": "0123456789"})[0] == 409


def test_readers_request_nothing(site: ApiSite) -> None:
    client = site.client(READER_PEER)
    for path in ("-suspend", "-resume", "-retry", "-restart", "-hold"):
        assert client.request("POST", f"{WEB}/{path}", json={}).status_code == 403
    run = {"type": "runCronWorkload", "spec": {"location": "here"}}
    assert client.request("POST", f"{JOB}/-command", json=run).status_code == 403
    assert client.request("POST", f"{ORG}/-approve", json={"digest": "0123456789"}).status_code == 403
    assert client.request("POST", f"{ORG}/source/main/-suspend", json={}).status_code == 403


def test_a_rollback_to_an_unknown_revision_is_the_fault_of_the_caller(site: ApiSite) -> None:
    code, answer = post(site, f"{ORG}/source/main/-rollback", {"revision": "none"})
    assert (code, answer["message"]) == (404, "source main: revision 'none' is not in the repository")


@pytest.mark.parametrize("number", ["-1", "9" * 20, "9" * 5000])
def test_a_number_that_no_row_has_is_refused(site: ApiSite, number: str) -> None:
    answer = site.client().request("GET", f"{ORG}/-audit", params={"after": number})
    assert answer.status_code == 400
