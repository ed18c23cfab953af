"""A credential belongs to the life of its account: it never works again once the account was deleted."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from reconciler.access.people import Person
from reconciler.access.rules import SUPERUSERS, Caller
from reconciler.api.service import Api
from reconciler.settings import load_settings
from tests.api.conftest import FILES
from tests.support.api import ORG, ApiClient, ApiSandbox, api_sandbox
from tests.support.clock import FakeClock

PHOENIX = "kind: serviceaccount\nname: phoenix\n"
ANN = "ann@example.com"


@pytest.fixture
def sandbox(tmp_path: Path) -> Iterator[ApiSandbox]:
    """A sandbox with an account of its own file, at the time of this host."""
    files = {**FILES, "phoenix.yaml": PHOENIX, "eve.yaml": "kind: user\nname: eve@example.com\n"}
    with api_sandbox(tmp_path, files) as made:
        made.clock.jump(time.time() - made.clock.now())
        yield made


def apply(sandbox: ApiSandbox, **files: str | None) -> None:
    """Commit ``files``, whose names have no suffix, and apply them."""
    sandbox.repo.commit({f"{name}.yaml": content for name, content in files.items()})
    done = sandbox.run("apply")
    assert done.returncode == 0, done.stdout + done.stderr


def status(sandbox: ApiSandbox, credential: str) -> int:
    """The status of a request that needs a valid credential, and no permission."""
    return sandbox.client(None).request("GET", "/whoami", headers={"Authorization": credential}).status_code


def login(sandbox: ApiSandbox, name: str) -> tuple[str, str]:
    """The session of a person who logs in, and the refresh token."""
    person = sandbox.api.store.people.find(name) or Person(name, sandbox.clock.now())
    made, refresh = sandbox.api.store.people.begin_login(person, (), 86_400.0)
    return sandbox.api.store.add_session(Caller(f"user/{name}"), 900.0, made.id), refresh


def test_keys_and_sessions_of_a_deleted_account_stay_void_when_its_name_returns(sandbox: ApiSandbox) -> None:
    account = f"{ORG}/serviceaccount/phoenix/-key"
    key = sandbox.client().request("POST", account, json={}).json()["key"]
    session = sandbox.api.store.add_session(Caller("serviceaccount/phoenix"), 3600.0)
    acting = sandbox.api.store.add_session(
        Caller(f"user/{ANN}", credential="impersonated by serviceaccount/phoenix"), 900
    )
    assert [status(sandbox, credential) for credential in (key, session, acting)] == [200, 200, 200]
    sandbox.api.store.begin_answer("serviceaccount/phoenix", "once", b"digest", "id")
    apply(sandbox, phoenix=None)
    assert [status(sandbox, credential) for credential in (key, session)] == [401, 401]
    apply(sandbox, phoenix=PHOENIX)
    assert [status(sandbox, credential) for credential in (key, session)] == [401, 401]
    assert sandbox.client().get(account)["items"] == []
    fresh = sandbox.client().request("POST", account, json={}).json()["key"]
    sandbox.api.end_former_lives()
    assert [status(sandbox, credential) for credential in (fresh, key, acting)] == [200, 401, 401]
    # Nor does the next account get the answers to requests of the former one.
    assert sandbox.api.store.begin_answer("serviceaccount/phoenix", "once", b"digest", "id") is None


def test_what_ended_stays_void_when_older_records_come_back(sandbox: ApiSandbox, tmp_path: Path) -> None:
    key = sandbox.api.store.add_key("phoenix", "", "test", None)[1]
    backup = tmp_path / "copy.sqlite"
    assert sandbox.run("backup", str(backup)).returncode == 0
    apply(sandbox, phoenix=None)
    sandbox.api.end_former_lives()
    sandbox.api.close()
    assert sandbox.run("restore", str(backup), "--force").returncode == 0
    with closing(Api(load_settings(sandbox.settings_file), FakeClock(), lambda: True)) as api:
        answer = ApiClient(api, None).request("GET", "/whoami", headers={"Authorization": key})
        assert answer.status_code == 401


def test_a_user_whose_manifest_is_gone_has_no_session_and_must_be_invited_again(sandbox: ApiSandbox) -> None:
    sandbox.client().request("POST", f"{ORG}/user/eve@example.com/-invite")
    acting = sandbox.client().request("POST", f"{ORG}/user/eve@example.com/-impersonate").json()["token"]
    assert status(sandbox, acting) == 200
    _, refresh = login(sandbox, "eve@example.com")
    apply(sandbox, eve=None)
    assert status(sandbox, acting) == 401
    assert sandbox.api.store.people.find("eve@example.com") is None
    apply(sandbox, eve="kind: user\nname: eve@example.com\n")
    assert status(sandbox, acting) == 401
    assert sandbox.api.store.people.find("eve@example.com") is None
    sandbox.client().request("POST", f"{ORG}/user/eve@example.com/-invite")
    assert sandbox.api.store.people.find("eve@example.com") is not None
    assert sandbox.api.store.people.refresh(refresh) is None


def test_a_person_who_is_invited_again_logs_in_again(sandbox: ApiSandbox) -> None:
    person = f"{ORG}/user/kim@example.com"
    assert sandbox.client().request("POST", f"{person}/-invite").status_code == 201
    _, refresh = login(sandbox, "kim@example.com")
    acting = sandbox.client().request("POST", f"{person}/-impersonate").json()["token"]
    of_kim = Caller(f"user/{ANN}", frozenset({str(SUPERUSERS)}), "impersonated by user/kim@example.com")
    by_kim = sandbox.api.store.add_session(of_kim, 900)
    assert [status(sandbox, credential) for credential in (acting, by_kim)] == [200, 200]
    began = sandbox.clock.now()
    sandbox.clock.jump(1.0)
    assert sandbox.client().request("DELETE", person).status_code == 202
    assert sandbox.client().request("POST", f"{person}/-invite").status_code == 201
    assert [status(sandbox, credential) for credential in (acting, by_kim)] == [401, 401]
    people = sandbox.api.store.people
    assert people.refresh(refresh) is None
    # A code of a login that began before counts as little.
    assert people.was_removed_since("kim@example.com", began)
    assert not people.was_removed_since("kim@example.com", sandbox.clock.now())


def test_an_unused_token_of_a_deleted_agent_is_void_for_the_next_of_its_name(sandbox: ApiSandbox) -> None:
    token = sandbox.client().request("POST", f"{ORG}/agent", json={"name": "edge"}).json()["registrationToken"]
    assert sandbox.run("apply").returncode == 0
    sandbox.api.end_former_lives()
    sandbox.repo.commit({"agent/edge.yaml": None})
    assert sandbox.run("apply").returncode == 0
    apply(sandbox, edge="kind: agent\nname: edge\n")
    answer = sandbox.client(None).request("PUT", f"{ORG}/agent/edge/-info", json={}, headers={"Authorization": token})
    assert answer.status_code == 401
