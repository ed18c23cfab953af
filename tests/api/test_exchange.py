"""Tokens of CI jobs: which are exchanged, and the answer to each that is not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from reconciler.api.oidc.provider import LEEWAY, REFETCH_SECONDS, OidcProvider
from reconciler.api.problems import Problem
from reconciler.api.rate_limits import FREE_FAILURES
from tests.api.conftest import FILES
from tests.support.api import ORG, ApiSandbox, api_sandbox
from tests.support.oidc import Issuer, job_issuer

WEB = f"{ORG}/gvc/shop/workload/web"
GRANT = "urn:ietf:params:oauth:grant-type:token-exchange"
JOB = {"repository": "acme/shop", "ref": "refs/heads/main", "environment": "production", "ref_protected": True}


@pytest.fixture(scope="module")
def issuer() -> Iterator[Issuer]:
    """An issuer like that of a CI service."""
    with job_issuer() as made:
        yield made


@pytest.fixture(scope="module")
def sandbox(issuer: Issuer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiSandbox]:
    """A sandbox with two rules."""
    rules = [
        {"claims": {"repository": "acme/shop", "ref": "refs/heads/release/*"}, "serviceAccount": "gone"},
        {
            "claims": {"repository": "acme/shop", "ref_protected": "true", "environment": "production"},
            "serviceAccount": "ci",
            "lasts": "5m",
        },
    ]
    every = [{"issuer": issuer.url, "audience": "reconciler", **rule} for rule in rules]
    with api_sandbox(tmp_path_factory.mktemp("exchange"), FILES, api={"tokenExchange": every}) as made:
        yield made


@pytest.fixture(autouse=True)
def _no_failures(sandbox: ApiSandbox) -> None:
    """A valid credential ends the count of refused ones, so that no test waits for those of another."""
    sandbox.clock.suspend(3600.0)
    _, key = sandbox.api.store.add_key("ci", "", "test", None)
    assert sandbox.client(None).request("GET", "/whoami", headers={"Authorization": key}).status_code == 200


def exchange(sandbox: ApiSandbox, token: str, **more: Any) -> tuple[int, dict[str, Any]]:
    """Status and body of an exchange, as a client of OAuth 2.0 sends it."""
    form = {"grant_type": GRANT, "subject_token": token, "subject_token_type": "urn:ietf:params:oauth:token-type:jwt"}
    answer = sandbox.client(None).request("POST", "/login/exchange", data={**form, **more})
    return answer.status_code, answer.json()


def test_a_job_is_its_service_account_for_a_short_time(sandbox: ApiSandbox, issuer: Issuer) -> None:
    status, token = exchange(sandbox, issuer.token(sandbox.clock.now(), **JOB))
    assert (status, token["token_type"], token["expires_in"]) == (200, "Bearer", 300)
    assert token["principal"] == "serviceaccount/ci"
    client, headers = sandbox.client(None), {"Authorization": f"Bearer {token['access_token']}"}
    assert client.request("GET", WEB, headers=headers).status_code == 200
    assert client.request("GET", f"{ORG}/secret/db", headers=headers).status_code == 403
    [*_, entry] = [
        each for each in sandbox.client().get(f"{ORG}/-audit")["items"] if each["target"] == "/login/exchange"
    ]
    assert (entry["principal"], entry["credential"]) == ("serviceaccount/ci", f"token of {issuer.url}")
    sandbox.clock.suspend(301.0)
    assert client.request("GET", WEB, headers=headers).status_code == 401


def test_refused_tokens_keep_no_valid_one_out(sandbox: ApiSandbox, issuer: Issuer) -> None:
    refused = [exchange(sandbox, "hello")[0] for _ in range(FREE_FAILURES + 1)]
    assert refused == [401] * FREE_FAILURES + [429]
    assert exchange(sandbox, issuer.token(sandbox.clock.now(), **JOB))[0] == 200


def test_a_session_ends_with_the_token_of_the_job(sandbox: ApiSandbox, issuer: Issuer) -> None:
    now = int(sandbox.clock.now())
    status, made = exchange(sandbox, issuer.token(now, exp=now + 20, **JOB))
    assert (status, made["expires_in"]) == (200, 20)


Change = Callable[[Issuer, float], str]
REFUSED: dict[str, tuple[Change, int, str]] = {
    "expired": (lambda of, now: of.token(now, exp=int(now) - LEEWAY - 1, **JOB), 401, "it has expired"),
    "a clock five minutes fast": (lambda of, now: of.token(now + 300, **JOB), 401, "compare the clocks"),
    "a clock five minutes slow": (lambda of, now: of.token(now - 601, **JOB), 401, "it has expired"),
    "not yet valid": (lambda of, now: of.token(now, nbf=int(now) + 300, **JOB), 401, "compare the clocks"),
    "another audience": (lambda of, now: of.token(now, aud="other", **JOB), 401, "claim `aud`"),
    "no audience": (lambda of, now: of.token(now, aud=None, **JOB), 401, "claim `aud`"),
    "no end": (lambda of, now: of.token(now, exp=None, **JOB), 401, "claim `exp`"),
    "a text as its end": (lambda of, now: of.token(now, exp="soon", **JOB), 401, "the token is refused"),
    "another issuer": (lambda of, now: of.token(now, iss="https://x.example.com", **JOB), 401, "no rule"),
    "no signature": (lambda of, now: of.token(now, "none", **JOB), 401, "its algorithm is not one of"),
    "signed with the public key": (lambda of, now: of.token(now, "HS256", **JOB), 401, "its algorithm is not one of"),
    "a changed byte": (lambda of, now: _changed(of.token(now, **JOB)), 401, "its signature is wrong"),
    "no token": (lambda of, now: "hello", 401, "no rule"),
    "an empty one": (lambda of, now: "", 401, "no rule"),
    "a very long one": (lambda of, now: of.token(now, x="x" * 20_000, **JOB), 401, "no rule"),
    "another repository": (lambda of, now: of.token(now, **JOB | {"repository": "evil/shop"}), 403, "fit no rule"),
    "no environment": (lambda of, now: of.token(now, **JOB | {"environment": None}), 403, "fit no rule"),
    "a list": (lambda of, now: of.token(now, **JOB | {"repository": ["acme/shop"]}), 403, "fit no rule"),
    "a deleted account": (
        lambda of, now: of.token(now, **JOB | {"ref": "refs/heads/release/2"}),
        403,
        "there is no serviceaccount/gone",
    ),
}


def _changed(token: str) -> str:
    head, body, signature = token.split(".")
    return f"{head}.{body}.{'A' if signature[0] != 'A' else 'B'}{signature[1:]}"


@pytest.mark.parametrize("case", REFUSED)
def test_a_token_is_refused(case: str, sandbox: ApiSandbox, issuer: Issuer) -> None:
    change, status, words = REFUSED[case]
    token = change(issuer, sandbox.clock.now())
    code, body = exchange(sandbox, token)
    assert (code, body["status"], body["code"]) == (status, status, "Unauthorized" if status == 401 else "Forbidden")
    assert words in body["message"], body
    assert body["id"]
    assert len(token) < 10 or token not in str(body)
    last = sandbox.client().get(f"{ORG}/-audit")["items"][-1]
    assert (last["target"], last["outcome"], last["message"]) == ("/login/exchange", status, body["message"])


def test_a_clock_may_be_wrong_by_a_minute(sandbox: ApiSandbox, issuer: Issuer) -> None:
    for drift in (-LEEWAY + 5, LEEWAY - 5):
        assert exchange(sandbox, issuer.token(sandbox.clock.now() + drift, **JOB))[0] == 200


def test_a_new_key_is_fetched_at_most_once_a_minute(sandbox: ApiSandbox, issuer: Issuer) -> None:
    assert exchange(sandbox, issuer.token(sandbox.clock.now(), **JOB))[0] == 200
    sandbox.clock.suspend(REFETCH_SECONDS)
    issuer.rotate("second")
    reads = issuer.reads
    assert exchange(sandbox, issuer.token(sandbox.clock.now(), **JOB))[0] == 200
    issuer.rotate("third")
    for _ in range(3):
        status, body = exchange(sandbox, issuer.token(sandbox.clock.now(), **JOB))
        assert (status, body["message"]) == (401, "the token is refused: no key of its issuer has signed it")
    assert issuer.reads == reads + 1
    sandbox.clock.suspend(REFETCH_SECONDS)
    assert exchange(sandbox, issuer.token(sandbox.clock.now(), **JOB))[0] == 200
    assert issuer.reads == reads + 2


def test_an_issuer_that_does_not_answer_is_503(sandbox: ApiSandbox, issuer: Issuer) -> None:
    sandbox.clock.suspend(3600.0)
    good, issuer.metadata = issuer.metadata, {"issuer": "https://x.example.com", "jwks_uri": "https://x.example.com"}
    try:
        status, body = exchange(sandbox, issuer.token(sandbox.clock.now(), **JOB))
        assert (status, body["code"]) == (503, "ServiceUnavailable")
        assert "those of another issuer" in body["message"]
    finally:
        issuer.metadata = good
    # A failure is the answer for some seconds: no request causes more than one.
    assert exchange(sandbox, issuer.token(sandbox.clock.now(), **JOB))[0] == 503
    sandbox.clock.suspend(10.0)
    assert exchange(sandbox, issuer.token(sandbox.clock.now(), **JOB))[0] == 200


@pytest.mark.parametrize("published", [{}, {"keys": None}, {"keys": [{"kty": "EC", "crv": "P-0", "x": "a", "y": "b"}]}])
def test_keys_that_are_none_are_503(published: dict[str, Any], sandbox: ApiSandbox, issuer: Issuer) -> None:
    good, issuer.published = issuer.published, published
    try:
        sandbox.clock.suspend(7200.0)
        status, body = exchange(sandbox, issuer.token(sandbox.clock.now(), **JOB))
        assert (status, body["code"]) == (503, "ServiceUnavailable")
        assert "no JSON Web Key Set" in body["message"]
    finally:
        issuer.published = good
        sandbox.clock.suspend(7200.0)
    assert exchange(sandbox, issuer.token(sandbox.clock.now(), **JOB))[0] == 200


@pytest.mark.parametrize("content", ["grant_type=a", "subject_token=a", "grant_type=a&grant_type=b", "\udcff"])
def test_a_form_with_a_fault_is_an_invalid_request(content: str, sandbox: ApiSandbox) -> None:
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    body = content.encode("utf-8", "surrogateescape")
    answer = sandbox.client(None).request("POST", "/login/exchange", content=body, headers=headers)
    found = answer.json()
    assert (answer.status_code, found["error"], found["code"]) == (400, "invalid_request", "BadRequest")
    assert found["error_description"] == found["message"]


def test_guesses_make_their_address_wait(sandbox: ApiSandbox, issuer: Issuer) -> None:
    token = _changed(issuer.token(sandbox.clock.now(), **JOB))
    assert [exchange(sandbox, token)[0] for _ in range(6)] == [401] * 5 + [429]


@pytest.mark.parametrize(
    ("claims", "words"),
    [
        ({"nonce": "mine"}, ""),
        ({"nonce": "another"}, "claim `nonce`"),
        ({}, "claim `nonce`"),
        ({"nonce": "mine", "azp": "another-client"}, "claim `azp`"),
        ({"nonce": "mine", "aud": ["reconciler", "another-client"]}, "claim `azp`"),
        ({"nonce": "mine", "aud": ["reconciler", "another-client"], "azp": "reconciler"}, ""),
        ({"nonce": "mine", "at_hash": "AAAAAAAAAAAAAAAAAAAAAA"}, "claim `at_hash`"),
    ],
)
async def test_an_id_token_belongs_to_its_login(
    claims: dict[str, Any], words: str, sandbox: ApiSandbox, issuer: Issuer
) -> None:
    provider = OidcProvider(issuer.url, None, sandbox.clock)
    token = issuer.token(sandbox.clock.now(), **claims)
    check = provider.claims(token, "reconciler", nonce="mine", client_id="reconciler", access_token="the access token")
    if not words:
        assert (await check)["sub"] == "job"
        return
    with pytest.raises(Problem, match=words) as refused:
        await check
    assert refused.value.status == 401
