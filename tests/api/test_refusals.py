"""Refused requests, as a table: bad credentials, tokens, methods, paths and bodies, each with its documented answer."""

from __future__ import annotations

import http
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from reconciler.access.rules import SUPERUSERS, Caller
from tests.api.conftest import FILES
from tests.support.api import ORG, ApiSandbox, api_sandbox
from tests.support.cases import cases
from tests.support.oidc import Issuer, job_issuer

EXCHANGE = {
    "grant_type": "urn:ietf:params:oauth:grant-type:token-exchange",
    "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
}
JOB = {"repository": "acme/shop"}
ENDED = "kind: serviceaccount\nname: former\n"
HINTS = {401: "www-authenticate", 405: "allow", 429: "retry-after"}
"""The header that belongs to a status; ``/login`` has no scheme to name."""


@pytest.fixture(scope="module")
def issuer() -> Iterator[Issuer]:
    """An issuer like that of a CI service."""
    with job_issuer() as made:
        yield made


@pytest.fixture(scope="module")
def sandbox(issuer: Issuer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiSandbox]:
    """A sandbox with rules for two repositories, one of them for an account that does not exist."""
    accounts = {"acme/shop": "ci", "acme/gone": "gone"}
    rules = [
        {"issuer": issuer.url, "audience": "reconciler", "claims": {"repository": name}, "serviceAccount": account}
        for name, account in accounts.items()
    ]
    files = {**FILES, "former.yaml": ENDED}
    with api_sandbox(tmp_path_factory.mktemp("refusals"), files, api={"tokenExchange": rules}) as made:
        yield made


@pytest.fixture(scope="module")
def former(sandbox: ApiSandbox) -> dict[str, str]:
    """Credentials of an account that was deleted; both were valid before."""
    credentials = {
        "key": sandbox.api.store.add_key("former", "", "test", None)[1],
        "session": sandbox.api.store.add_session(Caller("serviceaccount/former"), 1e6),
    }
    assert [status(sandbox, each) for each in credentials.values()] == [200, 200]
    sandbox.repo.commit({"former.yaml": None})
    done = sandbox.run("apply")
    assert done.returncode == 0, done.stdout + done.stderr
    return credentials


def status(sandbox: ApiSandbox, credential: str) -> int:
    """The status of a request that needs a valid credential, and no permission."""
    return sandbox.client(None).request("GET", "/whoami", headers={"Authorization": credential}).status_code


def key_of(sandbox: ApiSandbox, expires: float | None = None) -> str:
    """A new key of the service account, which is valid."""
    key = sandbox.api.store.add_key("ci", "", "test", expires)[1]
    assert status(sandbox, key) == 200
    return key


def revoked(sandbox: ApiSandbox) -> str:
    """A key that was revoked a second ago."""
    key = key_of(sandbox)
    name = key.removeprefix("rk_").partition(".")[0]
    answer = sandbox.client().request("DELETE", f"{ORG}/serviceaccount/ci/-key/{name}")
    assert answer.status_code == 204
    sandbox.clock.suspend(1.0)
    return key


def expired(sandbox: ApiSandbox) -> str:
    """A key that expired a second ago."""
    key = key_of(sandbox, sandbox.clock.now() + 10.0)
    sandbox.clock.suspend(11.0)
    return key


def ended(sandbox: ApiSandbox) -> str:
    """A session that ended a second ago."""
    session = sandbox.api.store.add_session(Caller("serviceaccount/ci"), 10.0)
    assert status(sandbox, session) == 200
    sandbox.clock.suspend(11.0)
    return session


def superuser(sandbox: ApiSandbox) -> str:
    """A valid session of a superuser."""
    return sandbox.api.store.add_session(Caller("user/ann", frozenset({str(SUPERUSERS)})), 60.0)


CREDENTIALS: dict[str, Callable[[ApiSandbox], str]] = {
    "key": key_of,
    "superuser": superuser,
    "expired key": expired,
    "revoked key": revoked,
    "ended session": ended,
    "changed key": lambda sandbox: f"{key_of(sandbox)[:-2]}--",
    "unknown key": lambda sandbox: "rk_000000000000.guess",
    "unknown session": lambda sandbox: "rs_guess",
    "unknown workload token": lambda sandbox: "rw_Z3Vlc3M.guess",
    "garbage": lambda sandbox: "Basic \u00e9\u00ff",
    "unsigned token": lambda sandbox: "eyJhbGciOiJub25lIn0.eyJzdWIiOiJyb290In0.",
}


@pytest.mark.parametrize("case", cases("api/refusals.yaml"))
def test_a_request_is_refused(
    case: dict[str, Any], sandbox: ApiSandbox, issuer: Issuer, former: dict[str, str]
) -> None:
    sandbox.clock.suspend(3600.0)
    key_of(sandbox)  # ends the count of refused credentials
    headers = dict(case.get("headers", {}))
    method, path, content = (
        case.get("method", "GET"),
        case.get("path", "/login/exchange"),
        case.get("body", "").encode(),
    )
    if "nested" in case or "size" in case:
        content = b"[" * case.get("nested", 0) or b" " * case["size"]
    if name := case.get("credential"):
        found = former[name.split()[0]] if name.endswith("deleted account") else CREDENTIALS[name](sandbox)
        headers["Authorization"] = found.encode("latin-1")
    more: dict[str, Any] = {"content": content}
    if (wanted := case.get("token")) is not None:
        now = sandbox.clock.now() + wanted.get("drift", 0)
        token = issuer.token(now, *filter(None, [wanted.get("algorithm")]), **JOB | wanted.get("claims", {}))
        method, more = "POST", {"data": {**EXCHANGE, "subject_token": token}}
    answer = sandbox.client(None).request(method, path, headers=headers, **more)
    body = answer.json()
    assert (answer.status_code, body["status"]) == (case["status"], case["status"]), body
    assert body["code"] == http.HTTPStatus(case["status"]).phrase.replace(" ", "")
    assert case.get("message", "") in body["message"], body
    assert case.get("details", "") in str(body["details"]), body
    assert body["id"] == answer.headers["x-request-id"]
    assert answer.headers["content-type"] == "application/json"
    assert path.startswith("/login") or HINTS.get(case["status"], "x-request-id") in answer.headers
    # No answer repeats the credential.
    secret = headers.get("Authorization", b"").decode("latin-1").removeprefix("Bearer ")
    assert not secret or secret not in answer.text


def test_the_same_requests_are_answered_with_what_they_lack(sandbox: ApiSandbox, issuer: Issuer) -> None:
    sandbox.clock.suspend(3600.0)
    assert status(sandbox, key_of(sandbox)) == status(sandbox, superuser(sandbox)) == 200
    form = {**EXCHANGE, "subject_token": issuer.token(sandbox.clock.now(), **JOB)}
    assert sandbox.client(None).request("POST", "/login/exchange", data=form).status_code == 200
    header = {"Authorization": superuser(sandbox)}
    group = {"name": "x"}
    answer = sandbox.client(None).request("POST", f"{ORG}/group?dryRun=true", json=group, headers=header)
    assert answer.status_code == 200, answer.text


def test_schemes_and_media_types_are_in_any_case(sandbox: ApiSandbox) -> None:
    sandbox.clock.suspend(3600.0)
    headers = {"Authorization": f"bEARER  {superuser(sandbox)}", "Content-Type": "Application/JSON; Charset=UTF-8"}
    answer = sandbox.client(None).request("POST", f"{ORG}/group?dryRun=true", content=b'{"name": "x"}', headers=headers)
    assert answer.status_code == 200, answer.text
    assert sandbox.client(None).request("DELETE", "/login", headers=headers).status_code == 204
