"""A source whose commits have to be signed, under a daemon."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.keys import Keys
from tests.support.sandbox import DaemonSandbox, eventually, workload


@pytest.fixture
def keys(tmp_path: Path) -> Iterator[Keys]:
    """A key of ada that is trusted, and one of eve that is not."""
    signers = Keys(tmp_path / "keys")
    signers.ssh("ada")
    signers.ssh("eve", allowed=False)
    yield signers
    signers.stop()


@pytest.mark.parametrize("signed", ["commit", "history"])
def test_an_unsigned_commit_is_reported_and_never_applied(tmp_path: Path, keys: Keys, signed: str) -> None:
    sandbox = DaemonSandbox(tmp_path / "site")
    verify = {"signed": signed, "allowedSigners": str(keys.signers), "revokedKeys": str(keys.revoked)}
    sandbox.configure(sources=[sandbox.source(interval="500ms", verify=verify)])
    good = keys.commit(sandbox.repo, "shop/web.yaml", workload("web"), "ada")
    with sandbox.daemon() as daemon:
        eventually(lambda: sandbox.applied(good), "what ada signed is applied")
        bad = keys.commit(sandbox.repo, "shop/api.yaml", workload("api", 6666), "eve")
        eventually(lambda: sandbox.condition("SourceReachable") == "false SourceUnverified", "the condition reports it")
        message = sandbox.condition_message("SourceReachable")
        assert f"commit {bad[:12]} is not accepted: no allowed signer has such a key" in message
        eventually(lambda: "SourceUnverified" in sandbox.status("reconciler.yaml"), "the status branch reports it")
        sandbox.repo.git("update-ref", "refs/heads/main", good)
        eventually(lambda: sandbox.condition("SourceReachable") == "true Fetched", "the last good one goes on")
        best = keys.commit(sandbox.repo, "shop/cart.yaml", workload("cart"), "ada")
        eventually(lambda: sandbox.applied(best), "the next one is applied")
        with sandbox.records() as records:
            events = [event for event in records.events.list(limit=100) if event.reason == "SourceUnverified"]
            assert len(events) == 1
            assert all(run.revision.rpartition(":")[2] != bad for run in records.runs.list(100, "main"))
        assert len(daemon.logged("reconciled", level="warning", outcome="unreadable")) == 1


def test_one_unsigned_commit_below_a_signed_one_stops_a_source_of_signed_history(tmp_path: Path, keys: Keys) -> None:
    sandbox = DaemonSandbox(tmp_path / "site")
    verify = {"signed": "history", "allowedSigners": str(keys.signers)}
    sandbox.configure(sources=[sandbox.source(interval="500ms", verify=verify)])
    good = keys.commit(sandbox.repo, "shop/web.yaml", workload("web"), "ada")
    with sandbox.daemon():
        eventually(lambda: sandbox.applied(good), "what ada signed is applied")
        slip = sandbox.repo.commit({"shop/api.yaml": workload("api", 6666)})
        keys.commit(sandbox.repo, "shop/cart.yaml", workload("cart"), "ada")
        eventually(lambda: slip[:12] in sandbox.condition_message("SourceReachable"), "the condition names the slip")
        assert "workload/shop/cart@here" not in sandbox.recorded()
