"""Webhooks: signatures as forges make them, replays, and many deliveries that become one look."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
from collections.abc import Iterator
from pathlib import Path

import pytest

from reconciler.api.rate_limits import FREE_FAILURES
from reconciler.api.webhooks import WAKE_SECONDS, WINDOW, Webhooks
from reconciler.settings import WebhookSettings
from tests.support.api import ApiSandbox, api_sandbox
from tests.support.clock import FakeClock
from tests.support.oidc import Issuer, job_issuer

SECRET = b"s3cret-of-the-forge"
BODY = b'{"ref": "refs/heads/main"}'
HEX = hmac.new(SECRET, BODY, hashlib.sha256).hexdigest()

SIGNED = {
    "github": {"X-Hub-Signature-256": f"sha256={HEX}", "X-GitHub-Delivery": "1"},
    "gitlab": {"X-Gitlab-Token": SECRET.decode(), "X-Gitlab-Event-UUID": "1"},
    "gitea": {"X-Gitea-Signature": HEX, "X-Gitea-Delivery": "1"},
    "forgejo": {"X-Forgejo-Signature": HEX, "X-Forgejo-Delivery": "1"},
    "bitbucket": {"X-Hub-Signature": f"sha256={HEX}", "X-Request-UUID": "1"},
    "generic": {"X-Signature-256": f"sha256={HEX}"},
}


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiSandbox]:
    """A sandbox with a webhook."""
    path = tmp_path_factory.mktemp("webhooks")
    (path / "secret").write_bytes(SECRET + b"\n")
    hook = {"source": "main", "forge": "github", "secretFile": str(path / "secret")}
    with api_sandbox(path, api={"webhooks": [hook]}) as made:
        yield made


def deliver(sandbox: ApiSandbox, forge: str, headers: dict[str, str], body: bytes = BODY) -> int:
    """The status of a delivery, with the webhook as that of ``forge``."""
    sandbox.api.webhooks = Webhooks(
        (WebhookSettings("main", forge, sandbox.path / "secret"),),  # type: ignore[arg-type]
        lambda _: None,
        sandbox.clock.monotonic,
    )
    return sandbox.client(None).request("POST", "/webhook/main", content=body, headers=headers).status_code


@pytest.mark.parametrize("forge", SIGNED)
def test_a_signed_delivery_is_taken_and_no_other(sandbox: ApiSandbox, forge: str) -> None:
    assert deliver(sandbox, forge, SIGNED[forge]) == 202
    sandbox.clock.suspend(60.0)
    [(name, value), *_] = SIGNED[forge].items()
    wrong = value[:-1] + ("0" if value[-1] != "0" else "1")
    assert deliver(sandbox, forge, {**SIGNED[forge], name: wrong}) == 401
    assert deliver(sandbox, forge, {}) == 401
    if forge != "gitlab":
        assert deliver(sandbox, forge, SIGNED[forge], BODY + b" ") == 401
    sandbox.clock.suspend(60.0)
    assert deliver(sandbox, forge, SIGNED[forge]) == 202


def test_wrong_deliveries_keep_no_signed_one_out(sandbox: ApiSandbox) -> None:
    found = [deliver(sandbox, "github", {}) for _ in range(FREE_FAILURES + 1)]
    assert found == [401] * FREE_FAILURES + [429]
    assert deliver(sandbox, "github", SIGNED["github"]) == 202


def test_without_a_secret_there_is_no_endpoint(sandbox: ApiSandbox) -> None:
    sandbox.clock.suspend(60.0)
    assert sandbox.client(None).request("POST", "/webhook/other", content=BODY).status_code == 404
    (sandbox.path / "secret").write_bytes(b"\n")
    try:
        empty = hmac.new(b"", BODY, hashlib.sha256).hexdigest()
        assert deliver(sandbox, "github", {"X-Hub-Signature-256": f"sha256={empty}"}) == 404
    finally:
        (sandbox.path / "secret").write_bytes(SECRET)


def test_a_body_that_is_too_long_is_refused(sandbox: ApiSandbox) -> None:
    sandbox.clock.suspend(60.0)
    assert deliver(sandbox, "github", SIGNED["github"], b"x" * (1 << 20) + b"x") == 413


async def test_a_delivery_is_taken_once_and_many_become_one_run() -> None:
    clock, woken = FakeClock(), list[str]()
    hooks = Webhooks((WebhookSettings("main", "github", Path("secret")),), woken.append, clock.monotonic)
    assert hooks.accept("main", "1")
    assert not hooks.accept("main", "1")
    assert [hooks.accept("main", str(number)) for number in range(2, 50)] == [True] * 48
    assert woken == ["main"]
    await asyncio.sleep(WAKE_SECONDS + 0.2)
    assert woken == ["main", "main"]
    clock.suspend(WINDOW + 1)
    assert hooks.accept("main", "1")
    assert woken == ["main", "main", "main"]


@pytest.fixture(scope="module")
def issuer() -> Iterator[Issuer]:
    """An issuer whose tokens sign deliveries."""
    with job_issuer() as made:
        yield made


@pytest.fixture(scope="module")
def hooked(issuer: Issuer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiSandbox]:
    """A sandbox with a webhook for one sender."""
    sender = {"issuer": issuer.url, "audience": "reconciler", "claims": {"email": "push@example.com"}}
    with api_sandbox(
        tmp_path_factory.mktemp("sender"), api={"webhooks": [{"source": "main", "forge": "generic", "oidc": sender}]}
    ) as made:
        yield made


def send(sandbox: ApiSandbox, token: str) -> int:
    """The status of a delivery with ``token``."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    return sandbox.client(None).request("POST", "/webhook/main", content=BODY, headers=headers).status_code


def test_a_token_of_the_sender_signs_a_delivery(hooked: ApiSandbox, issuer: Issuer) -> None:
    assert send(hooked, issuer.token(hooked.clock.now(), email="push@example.com")) == 202


@pytest.mark.parametrize(
    "claims",
    [
        {"email": "other@example.com"},
        {},
        {"email": "push@example.com", "aud": "another"},
        {"email": "push@example.com", "exp": 1},
        {"email": "push@example.com", "iss": "https://evil.example.com"},
    ],
)
def test_other_tokens_sign_none(claims: dict[str, object], hooked: ApiSandbox, issuer: Issuer) -> None:
    hooked.clock.suspend(3600.0)
    assert send(hooked, issuer.token(hooked.clock.now(), **claims)) == 401


@pytest.mark.parametrize("token", ["", "none.of.it", "x" * 20_000])
def test_what_is_no_token_signs_none(token: str, hooked: ApiSandbox) -> None:
    hooked.clock.suspend(3600.0)
    assert send(hooked, token) == 401


def test_an_issuer_that_does_not_answer_lets_the_sender_try_again(tmp_path: Path) -> None:
    with job_issuer() as gone:
        pass
    sender = {"issuer": gone.url, "audience": "reconciler", "claims": {"email": "push@example.com"}}
    with api_sandbox(tmp_path, api={"webhooks": [{"source": "main", "forge": "generic", "oidc": sender}]}) as made:
        assert send(made, gone.token(made.clock.now(), email="push@example.com")) == 503
