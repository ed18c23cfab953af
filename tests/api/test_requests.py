"""Requests of operators and commands: rows in the records, in the name of the caller."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.api.conftest import FILES
from tests.support.api import ORG, READER_PEER, ApiSandbox, api_sandbox

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
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiSandbox]:
    """A sandbox with a cron workload too."""
    with api_sandbox(tmp_path_factory.mktemp("requests"), {**FILES, "shop/job.yaml": CRON}) as made:
        yield made


def post(sandbox: ApiSandbox, path: str, body: Any = None) -> tuple[int, Any]:
    """Status and body of a POST by a superuser."""
    answer = sandbox.client().request("POST", path, json={} if body is None else body)
    return answer.status_code, answer.json()


def test_a_command_is_requested_read_and_cancelled(sandbox: ApiSandbox) -> None:
    code, made = post(sandbox, f"{JOB}/-command", {"type": "runCronWorkload", "spec": {"location": "here"}})
    assert (code, made["type"], made["lifecycleStage"]) == (201, "runCronWorkload", "pending")
    path = f"{JOB}/-command/{made['id']}"
    assert sandbox.client().get(path)["createdBy"] == "user/root"
    assert sandbox.client().request("DELETE", path).status_code == 200
    assert sandbox.client().get(path)["lifecycleStage"] == "cancelled"
    assert sandbox.client().request("DELETE", path).status_code == 409


def test_a_run_without_a_location_is_for_all(sandbox: ApiSandbox) -> None:
    code, made = post(sandbox, f"{JOB}/-command", {"type": "runCronWorkload"})
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
def test_a_wrong_command_is_refused(sandbox: ApiSandbox, item: str, body: Any, code: int, message: str) -> None:
    found, answer = post(sandbox, f"{item}/-command", body)
    assert found == code, answer
    assert answer["message"].startswith(message)


def test_a_resource_is_suspended_and_resumed(sandbox: ApiSandbox) -> None:
    code, answer = post(sandbox, f"{WEB}/-suspend", {"reason": "debugging", "until": "2026-02-01T00:00:00Z"})
    assert (code, answer["message"].split(";")[0]) == (200, "workload/shop/web is suspended until 2026-02-01T00:00:00Z")
    conditions = {each["type"]: each for each in sandbox.client().get(WEB)["status"]["conditions"]}
    assert "user/root" in conditions["Suspended"]["message"]
    assert post(sandbox, f"{WEB}/-resume")[0] == 200
    assert post(sandbox, f"{WEB}/-resume")[0] == 409
    assert post(sandbox, f"{WEB}/-suspend", {"until": "2025-01-01T00:00:00Z"})[0] == 400


def test_a_source_is_suspended_and_rolled_back(sandbox: ApiSandbox) -> None:
    source = f"{ORG}/source/main"
    assert post(sandbox, f"{source}/-suspend")[0] == 200
    assert post(sandbox, f"{source}/-resume")[0] == 200
    assert [value["outcome"] for value in sandbox.client().get(f"{source}/-runs")["items"]] == ["applied"]
    assert post(sandbox, f"{source}/-rollback", {"revision": "HEAD~7"})[0] in (404, 409, 503)
    assert post(sandbox, f"{ORG}/source/other/-suspend")[0] == 404
    assert [value["name"] for value in sandbox.client().get(f"{ORG}/source")["items"]] == ["main"]
    # No daemon runs here.
    assert post(sandbox, f"{source}/-sync")[0] == 503


def test_what_the_state_refuses_is_a_conflict(sandbox: ApiSandbox) -> None:
    assert post(sandbox, f"{WEB}/-retry")[0] == 409
    assert post(sandbox, f"{WEB}/-restart")[0] == 409
    assert post(sandbox, f"{WEB}/-hold", {"seconds": 5})[0] == 409
    assert post(sandbox, f"{ORG}/-approve", {"digest": "0123456789"})[0] == 409


def test_readers_request_nothing(sandbox: ApiSandbox) -> None:
    client = sandbox.client(READER_PEER)
    for path in ("-suspend", "-resume", "-retry", "-restart", "-hold"):
        assert client.request("POST", f"{WEB}/{path}", json={}).status_code == 403
    run = {"type": "runCronWorkload", "spec": {"location": "here"}}
    assert client.request("POST", f"{JOB}/-command", json=run).status_code == 403
    assert client.request("POST", f"{ORG}/-approve", json={"digest": "0123456789"}).status_code == 403
    assert client.request("POST", f"{ORG}/source/main/-suspend", json={}).status_code == 403


def test_a_rollback_to_an_unknown_revision_is_the_fault_of_the_caller(sandbox: ApiSandbox) -> None:
    code, answer = post(sandbox, f"{ORG}/source/main/-rollback", {"revision": "none"})
    assert (code, answer["message"]) == (404, "source main: revision 'none' is not in the repository")


@pytest.mark.parametrize("number", ["-1", "9" * 20, "9" * 5000])
def test_a_number_that_no_row_has_is_refused(sandbox: ApiSandbox, number: str) -> None:
    answer = sandbox.client().request("GET", f"{ORG}/-audit", params={"after": number})
    assert answer.status_code == 400


def test_a_mute_of_the_api_is_that_of_the_command(sandbox: ApiSandbox) -> None:
    body = {"target": "gvc/shop", "reason": "the database moves", "until": "2040-01-01T00:00:00Z"}
    code, answer = post(sandbox, f"{ORG}/-mute", body)
    assert (code, answer["message"].startswith("nothing is sent about gvc/shop until 2040-01-01")) == (200, True)
    with sandbox.records() as records:
        assert [(mute.target, mute.by, mute.reason) for mute in records.mutes.all()] == [
            ("gvc/shop", "user/root", "the database moves")
        ]
    assert post(sandbox, f"{ORG}/-unmute", {"target": "gvc/shop"})[0] == 200
    assert post(sandbox, f"{ORG}/-unmute", {"target": "gvc/shop"})[0] == 409


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"target": "gvc/moon"}, 404),
        ({"target": "moon"}, 409),
        ({"target": "workload/shop/moon"}, 404),
        ({"reason": ""}, 409),
        ({"until": "soon"}, 400),
        ({"until": "2020-01-01T00:00:00Z"}, 400),
    ],
)
def test_a_mute_without_a_target_reason_or_end_is_refused(
    sandbox: ApiSandbox, change: dict[str, str], status: int
) -> None:
    body = {"target": "gvc/shop", "reason": "a move", "until": "2040-01-01T00:00:00Z", **change}
    assert post(sandbox, f"{ORG}/-mute", body)[0] == status


def test_a_rule_is_not_tried_without_the_setting_and_by_readers(sandbox: ApiSandbox) -> None:
    code, answer = post(sandbox, f"{ORG}/-notify-test")
    assert (code, "the settings have no `notifications`" in str(answer)) == (409, True)
    refused = sandbox.client(READER_PEER).request("POST", f"{ORG}/-notify-test", json={})
    assert refused.status_code == 403
