"""Commits of the API are signed, so that sources that verify signatures accept them; the key is never shown."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from reconciler.api.service import Api
from reconciler.errors import UsageError
from reconciler.settings import load_settings
from reconciler.source.signing import check_signing_key
from tests.api.conftest import FILES
from tests.support.api import ORG, ROOT_PEER, ApiClient, ApiSandbox, api_sandbox
from tests.support.keys import Keys
from tests.support.sandbox import DaemonSandbox, eventually, workload

WEB = f"{ORG}/gvc/shop/workload/web"


@pytest.fixture
def keys(tmp_path: Path) -> Keys:
    """A key of the API and one of Ada, whom the source allows, and one of a stranger."""
    signers = Keys(tmp_path / "keys")
    signers.ssh("api")
    signers.ssh("ada")
    signers.ssh("stranger", allowed=False)
    return signers


@pytest.fixture
def sandbox(tmp_path: Path) -> Iterator[ApiSandbox]:
    """A sandbox of its own."""
    with api_sandbox(tmp_path / "site", FILES) as made:
        yield made


def restart(sandbox: ApiSandbox, keys: Keys, signer: str) -> ApiClient:
    """Serve ``sandbox`` with a source that verifies signatures, and with the key of ``signer`` ("": none)."""
    verify = {"signed": "history", "allowedSigners": str(keys.signers)}
    api = {"signingKey": str(keys.path / signer)} if signer else {}
    sandbox.configure(sources=[sandbox.source(verify=verify)], api=api)
    sandbox.api.close()
    sandbox.api = Api(load_settings(sandbox.settings_file), sandbox.clock, lambda: True)
    return ApiClient(sandbox.api, ROOT_PEER)


def test_a_source_that_verifies_signatures_accepts_a_signed_change(sandbox: ApiSandbox, keys: Keys) -> None:
    keys.commit(sandbox.repo, "shop/api.yaml", workload("api", 8081), "ada")
    client = restart(sandbox, keys, "api")
    answer = client.request("PATCH", WEB, json={"tags": {"umlaut": "ü"}})
    assert answer.status_code == 200, answer.text
    signers = f"gpg.ssh.allowedSignersFile={keys.signers}"
    verified = subprocess.run(
        ["git", "-C", str(sandbox.repo.path), "-c", signers, "verify-commit", "--raw", "main"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert 'Good "git" signature for api@example.com' in verified.stderr
    sandbox.repo.git("fsck", "--strict")
    assert sandbox.repo.git("log", "-1", "--format=%an %(trailers:key=Request-Id,valueonly)").split() == [
        "root",
        answer.headers["X-Request-Id"],
    ]
    done = sandbox.run("apply")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(("signer", "words"), [("", "it is not signed"), ("stranger", "no allowed signer has such")])
def test_a_change_that_the_source_would_not_accept_is_refused(
    sandbox: ApiSandbox, keys: Keys, signer: str, words: str
) -> None:
    newest = keys.commit(sandbox.repo, "shop/api.yaml", workload("api", 8081), "ada")
    answer = restart(sandbox, keys, signer).request("PATCH", WEB, json={"tags": {"a": "1"}})
    assert (answer.status_code, words in answer.text) == (409, True), answer.text
    assert "set `api.signingKey` in the settings to a key that it allows" in answer.text
    assert sandbox.repo.git("rev-parse", "main") == newest


def test_a_key_that_is_lost_later_is_named(sandbox: ApiSandbox, keys: Keys) -> None:
    client = restart(sandbox, keys, "stranger")
    (keys.path / "stranger").unlink()
    keys.commit(sandbox.repo, "shop/api.yaml", workload("api", 8081), "ada")
    newest = sandbox.repo.git("rev-parse", "main")
    answer = client.request("PATCH", WEB, json={"tags": {"a": "1"}})
    assert (answer.status_code, f"{keys.path}/stranger cannot be read: No such file" in answer.text) == (503, True)
    assert sandbox.repo.git("rev-parse", "main") == newest


def test_a_key_that_cannot_sign_is_refused_at_start(tmp_path: Path, keys: Keys) -> None:
    tool = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "a passphrase", "-f", str(keys.path / "locked")]
    subprocess.run(tool, check=True)
    (keys.path / "open").write_text((keys.path / "api").read_text())
    (keys.path / "open").chmod(0o644)
    (keys.path / "pgp").write_text("-----BEGIN PGP PRIVATE KEY BLOCK-----\n")
    broken = (keys.path / "api").read_text().splitlines()
    (keys.path / "broken").write_text("\n".join([broken[0], "planted" + broken[1][7:], *broken[2:]]))
    (keys.path / "broken").chmod(0o600)
    for name, words in (
        ("missing", "cannot be read: No such file or directory"),
        (".", "cannot be read: Is a directory"),
        ("locked", "it has a passphrase, which the daemon cannot enter: remove it with `ssh-keygen -p`"),
        ("open", "Permissions 0644 for"),
        ("pgp", "is no SSH private key: make one with `ssh-keygen"),
        ("api.pub", "is no SSH private key: make one with `ssh-keygen"),
        ("broken", "does not sign: "),
    ):
        sandbox = DaemonSandbox(tmp_path / f"site of {name}", api={"signingKey": str(keys.path / name)})
        with pytest.raises(UsageError, match=r"`api.signingKey` of the settings cannot be used") as caught:
            check_signing_key(load_settings(sandbox.settings_file))
        assert words in str(caught.value)
        assert "planted" not in str(caught.value)
    done = sandbox.run("run")
    assert (done.returncode, "`api.signingKey` of the settings cannot be used" in done.stderr) == (2, True)


def test_a_reload_with_a_bad_key_stays_with_the_former_settings(tmp_path: Path, keys: Keys) -> None:
    sandbox = DaemonSandbox(tmp_path / "site", api={"signingKey": str(keys.path / "api")})
    with sandbox.daemon() as running:
        sandbox.configure(api={"signingKey": str(keys.path / "missing")})
        eventually(lambda: running.logged("settings", loaded=False))
        [refused] = running.logged("settings", loaded=False)
        assert "`api.signingKey` of the settings cannot be used" in refused["message"]
        assert running.process.poll() is None
        private = (keys.path / "api").read_text().splitlines()[1]
        assert private not in running.log_file.read_text()
