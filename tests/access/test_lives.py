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
from tests.support.api import ORG, ApiClient, ApiSite, api_site
from tests.support.clock import FakeClock

PHOENIX = "kind: serviceaccount\nname: phoenix\n"
ANN = "ann@example.com"


@pytest.fixture
def site(tmp_path: Path) -> Iterator[ApiSite]:
    """A site with an account of its own file, at the time of this host."""
    files = {**FILES, "phoenix.yaml": PHOENIX, "eve.yaml": "kind: user\nname: eve@example.com\n"}
    with api_site(tmp_path, files) as made:
        made.clock.jump(time.time() - made.clock.now())
        yield made


def apply(site: ApiSite, **files: str | None) -> None:
    """Commit ``files``, whose names have no suffix, and apply them."""
    site.repo.commit({f"{name}.yaml": content for name, content in files.items()})
    done = site.run("apply")
    assert done.returncode == 0, done.stdout + done.stderr


def status(site: ApiSite, credential: str) -> int:
    """The status of a request that needs a valid credential, and no permission."""
    return site.client(None).request("GET", "/whoami", headers={"Authorization": credential}).status_code


def login(site: ApiSite, name: str) -> tuple[str, str]:
    """The session of a person who logs in, and the refresh token."""
    person = site.api.store.people.find(name) or Person(name, site.clock.now())
    made, refresh = site.api.store.people.begin_login(person, (), 86_400.0)
    return site.api.store.add_session(Caller(f"user/{name}"), 900.0, made.id), refresh


def test_keys_and_sessions_of_a_deleted_account_stay_void_when_its_name_returns(site: ApiSite) -> None:
    account = f"{ORG}/serviceaccount/phoenix/-key"
    key = site.client().request("POST", account, json={}).json()["key"]
    session = site.api.store.add_session(Caller("serviceaccount/phoenix"), 3600.0)
    acting = site.api.store.add_session(Caller(f"user/{ANN}", credential="impersonated by serviceaccount/phoenix"), 900)
    assert [status(site, each) for each in (key, session, acting)] == [200, 200, 200]
    site.api.store.begin_answer("serviceaccount/phoenix", "once", b"digest", "id")
    apply(site, phoenix=None)
    assert [status(site, each) for each in (key, session)] == [401, 401]
    apply(site, phoenix=PHOENIX)
    assert [status(site, each) for each in (key, session)] == [401, 401]
    assert site.client().get(account)["items"] == []
    fresh = site.client().request("POST", account, json={}).json()["key"]
    site.api.end_former_lives()
    assert [status(site, each) for each in (fresh, key, acting)] == [200, 401, 401]
    # Nor does the next account get the answers to requests of the former one.
    assert site.api.store.begin_answer("serviceaccount/phoenix", "once", b"digest", "id") is None


def test_what_ended_stays_void_when_older_records_come_back(site: ApiSite, tmp_path: Path) -> None:
    key = site.api.store.add_key("phoenix", "", "test", None)[1]
    backup = tmp_path / "copy.sqlite"
    assert site.run("backup", str(backup)).returncode == 0
    apply(site, phoenix=None)
    site.api.end_former_lives()
    site.api.close()
    assert site.run("restore", str(backup), "--force").returncode == 0
    with closing(Api(load_settings(site.settings_file), FakeClock(), lambda: True)) as api:
        answer = ApiClient(api, None).request("GET", "/whoami", headers={"Authorization": key})
        assert answer.status_code == 401


def test_a_user_whose_manifest_is_gone_has_no_session_and_must_be_invited_again(site: ApiSite) -> None:
    site.client().request("POST", f"{ORG}/user/eve@example.com/-invite")
    acting = site.client().request("POST", f"{ORG}/user/eve@example.com/-impersonate").json()["token"]
    assert status(site, acting) == 200
    _, refresh = login(site, "eve@example.com")
    apply(site, eve=None)
    assert status(site, acting) == 401
    assert site.api.store.people.find("eve@example.com") is None
    apply(site, eve="kind: user\nname: eve@example.com\n")
    assert status(site, acting) == 401
    assert site.api.store.people.find("eve@example.com") is None
    site.client().request("POST", f"{ORG}/user/eve@example.com/-invite")
    assert site.api.store.people.find("eve@example.com") is not None
    assert site.api.store.people.refresh(refresh) is None


def test_a_person_who_is_invited_again_logs_in_again(site: ApiSite) -> None:
    person = f"{ORG}/user/kim@example.com"
    assert site.client().request("POST", f"{person}/-invite").status_code == 201
    _, refresh = login(site, "kim@example.com")
    acting = site.client().request("POST", f"{person}/-impersonate").json()["token"]
    of_kim = Caller(f"user/{ANN}", frozenset({str(SUPERUSERS)}), "impersonated by user/kim@example.com")
    by_kim = site.api.store.add_session(of_kim, 900)
    assert [status(site, each) for each in (acting, by_kim)] == [200, 200]
    began = site.clock.now()
    site.clock.jump(1.0)
    assert site.client().request("DELETE", person).status_code == 202
    assert site.client().request("POST", f"{person}/-invite").status_code == 201
    assert [status(site, each) for each in (acting, by_kim)] == [401, 401]
    people = site.api.store.people
    assert people.refresh(refresh) is None
    # A code of a login that began before counts as little.
    assert people.was_removed_since("kim@example.com", began)
    assert not people.was_removed_since("kim@example.com", site.clock.now())


def test_an_unused_token_of_a_deleted_agent_is_void_for_the_next_of_its_name(site: ApiSite) -> None:
    made = site.client().request("POST", f"{ORG}/agent", json={"name": "edge"}).json()["registrationToken"]
    assert site.run("apply").returncode == 0
    site.api.end_former_lives()
    site.repo.commit({"agent/edge.yaml": None})
    assert site.run("apply").returncode == 0
    apply(site, edge="kind: agent\nname: edge\n")
    answer = site.client(None).request("PUT", f"{ORG}/agent/edge/-info", json={}, headers={"Authorization": made})
    assert answer.status_code == 401
