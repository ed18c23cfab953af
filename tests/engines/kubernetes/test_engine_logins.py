"""Logins of registries on a cluster: a former one goes once nothing needs it, and none that is needed does."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path

import pytest

from reconciler.engines.kubernetes import engine
from reconciler.engines.protocol import Result
from reconciler.model.kinds.secret import SecretValue
from tests.engines.kubernetes.engine_kit import NAME, SPACE, ClusterHarness, engine_on_fake


@pytest.fixture
def harness(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ClusterHarness]:
    monkeypatch.setattr(engine, "TIMES_SECONDS", 0.1)
    monkeypatch.setattr(engine, "FIRST_RETRY", 0.05)
    with engine_on_fake(tmp_path) as harness:
        yield harness


def start_with_login(harness: ClusterHarness) -> str:
    """Apply ``web`` in a GVC with a login of a registry; returns the name of its Secret."""
    harness.secrets["login"] = SecretValue("docker", '{"auths": {"registry.example": {"auth": "YTpi"}}}')
    harness.record_gvc(spec={"pullSecretLinks": ["//secret/login"]})
    assert harness.apply_web().result is Result.APPLIED
    harness.wait_for_health()
    [name] = list_logins(harness)
    return name


def list_logins(harness: ClusterHarness) -> list[str]:
    """The names of the Secrets with logins of registries."""
    return [name for name in harness.names("Secret") if "pull-" in name]


def test_a_changed_login_replaces_the_one_before_once_no_pod_has_it(harness: ClusterHarness) -> None:
    former = start_with_login(harness)
    harness.secrets["login"] = SecretValue("docker", '{"auths": {"registry.example": {"auth": "YTpj"}}}')
    harness.server.fail("patch deployments.apps", 500, -1)
    harness.engine.refresh()
    harness.until(lambda: len(list_logins(harness)) == 2, "both are there")
    harness.rest(0.5)
    assert former in list_logins(harness), "the Deployment still names it"
    harness.server.heal()
    harness.until(lambda: len(list_logins(harness)) == 1, "the former one is deleted")
    assert list_logins(harness) != [former]
    assert "reconciler.salt" in harness.names("Secret")
    harness.wait_for_health()


def test_a_login_that_was_left_before_a_restart_is_deleted(harness: ClusterHarness) -> None:
    former = start_with_login(harness)
    harness.do(harness.engine.close())
    left = deepcopy(harness.server.object("Secret", former, SPACE))
    metadata = left["metadata"]
    left["metadata"] = {name: metadata[name] for name in ("labels", "annotations", "namespace")}
    left["metadata"]["name"] = "reconciler.pull-0123456789abcdef01234567"
    harness.server.create(left, "reconciler")
    harness.begin_anew()
    harness.until(lambda: list_logins(harness) == [former], "the one that is left is deleted")
    harness.wait_for_health()


def test_logins_of_a_gvc_that_is_gone_are_deleted(harness: ClusterHarness) -> None:
    start_with_login(harness)
    harness.until(lambda: harness.delete_web().result is Result.APPLIED, "the workload is deleted")
    harness.rest(0.3)
    assert list_logins(harness), "the GVC still has it"
    harness.records.applied.remove([("gvc/shop", "")])
    harness.begin_anew()
    harness.until(lambda: not list_logins(harness), "the login is deleted")


def test_lost_records_delete_no_login_that_a_workload_names(harness: ClusterHarness, tmp_path: Path) -> None:
    name = start_with_login(harness)
    other = ClusterHarness(tmp_path / "other", harness.server)
    try:
        other.open()
        other.rest(0.5)
        assert list_logins(harness) == [name]
        harness.server.authorizer.forbid("pods", "list")
        harness.server.scale("Deployment", NAME, SPACE, 0)
        other.rest(0.5)
        assert list_logins(harness) == [name], "its template names it"
    finally:
        other.close()
