"""Agents: bootstrap files, their tokens, and reports."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from reconciler.times import format_iso_time
from tests.api.browser import Browser
from tests.api.conftest import FILES
from tests.support.api import ORG, READER_PEER, ApiSandbox, api_sandbox

AGENTS = f"{ORG}/agent"
ENV = {"hostname": "edge-1", "cloudProvider": "aws", "internalIP": "10.0.0.7"}


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiSandbox]:
    """A sandbox with an agent that a manifest declares."""
    files = {**FILES, "agents.yaml": "kind: agent\nname: declared\n"}
    with api_sandbox(tmp_path_factory.mktemp("agents"), files, api={"url": "https://ops.example.com/"}) as made:
        yield made


def post(sandbox: ApiSandbox, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
    """Status and body of a POST by a superuser."""
    answer = sandbox.client().request("POST", path, json=body, headers=headers)
    return answer.status_code, answer.json()


def report(sandbox: ApiSandbox, token: str, name: str, body: Any = None) -> httpx2.Response:
    """The response to a report with ``token``, after the delay that refused ones cost."""
    sandbox.clock.suspend(60.0)
    body = {"env": ENV, "serviceCount": 3, "peerCount": 1} if body is None else body
    return sandbox.client(None).request("PUT", f"{AGENTS}/{name}/-info", json=body, headers={"Authorization": token})


def test_a_new_agent_gets_a_bootstrap_file_and_reports(sandbox: ApiSandbox) -> None:
    assert "registrationToken" not in post(sandbox, f"{AGENTS}?dryRun=true", {"name": "edge"})[1]
    code, registration = post(sandbox, AGENTS, {"name": "edge"}, **{"Idempotency-Key": "edge"})
    assert (code, registration["agentLink"], registration["hubEndpoint"]) == (
        201,
        "/org/acme/agent/edge",
        "https://ops.example.com",
    )
    token = registration["registrationToken"]
    assert token.startswith(f"ra_{registration['agentId']}.")
    again = post(sandbox, AGENTS, {"name": "edge"}, **{"Idempotency-Key": "edge"})
    assert again == (201, {name: value for name, value in registration.items() if name != "registrationToken"})
    # A process of its own: to close a file of SQLite in this one would end its locks.
    assert subprocess.run(["grep", "-rF", token, str(sandbox.state)], capture_output=True, check=False).returncode == 1

    assert report(sandbox, token, "edge").status_code == 503
    assert sandbox.run("apply").returncode == 0
    assert sandbox.client().get(f"{AGENTS}/edge/-info") == {
        "env": {},
        "serviceCount": 0,
        "peerCount": 0,
        "lastActive": None,
    }
    assert report(sandbox, token, "edge").status_code == 204
    expected = {"env": ENV, "serviceCount": 3, "peerCount": 1, "lastActive": format_iso_time(sandbox.clock.now())}
    assert sandbox.client(READER_PEER).get(f"{AGENTS}/edge/-info") == expected
    audit = sandbox.client().request("GET", f"{ORG}/-audit").text
    assert token not in audit

    # Another agent of the same name is not this one.
    for _ in range(2):
        sandbox.repo.commit({"agent/edge.yaml": None})
        assert sandbox.run("apply").returncode == 0
        assert report(sandbox, token, "edge").status_code == 401
        sandbox.repo.commit({"agent/edge.yaml": "kind: agent\nname: edge\n"})
        assert sandbox.run("apply").returncode == 0
        assert report(sandbox, token, "edge").status_code == 401
        assert sandbox.client().get(f"{AGENTS}/edge/-info")["lastActive"] is None


def test_an_agent_of_a_manifest_gets_a_token_that_ends_with_the_next(sandbox: ApiSandbox) -> None:
    path = f"{AGENTS}/declared/-bootstrap"
    tokens = [post(sandbox, path)[1]["registrationToken"] for _ in range(2)]
    assert [report(sandbox, token, "declared").status_code for token in tokens] == [401, 204]
    assert sandbox.client(READER_PEER).request("POST", path).status_code == 403
    assert post(sandbox, f"{AGENTS}/none/-bootstrap")[0] == 404


def test_a_token_is_for_its_agent_and_permits_nothing_else(sandbox: ApiSandbox) -> None:
    token = post(sandbox, f"{AGENTS}/declared/-bootstrap")[1]["registrationToken"]
    assert report(sandbox, token, "other").status_code == 403
    for path in (f"{ORG}/gvc/shop/workload/web", f"{AGENTS}/declared", f"{AGENTS}/declared/-info", ORG):
        answer = sandbox.client(None).request("GET", path, headers={"Authorization": f"Bearer {token}"})
        assert answer.status_code == 403, path
    assert sandbox.client().request("PUT", f"{AGENTS}/declared/-info", json={}).status_code == 403
    browser = Browser(sandbox)
    assert browser.send(browser.form("/ui/login", "/ui/login"), key=token).status_code == 401
    for wrong in (f"{token}x", token.partition(".")[0], "ra_", "ra_."):
        assert report(sandbox, wrong, "declared").status_code == 401


@pytest.mark.parametrize(
    "body", [[], {"env": {"kernel": "6.1"}}, {"peerCount": -1}, {"env": {"zone": "z" * 251}}, {"serviceCount": "3"}]
)
def test_a_wrong_report_is_refused(sandbox: ApiSandbox, body: Any) -> None:
    token = post(sandbox, f"{AGENTS}/declared/-bootstrap")[1]["registrationToken"]
    assert report(sandbox, token, "declared", body).status_code == 400
    assert sandbox.client().get(f"{AGENTS}/declared/-info")["lastActive"] is None
