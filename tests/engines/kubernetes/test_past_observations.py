"""What has not changed on a cluster is not read again, and whatever may change an observation is seen at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from reconciler.engines.kubernetes.rendering.names import DIGEST
from reconciler.engines.protocol import Observation
from reconciler.engines.workload.deployment import read_deployment
from reconciler.model.key import Key
from reconciler.model.record import Health
from tests.engines.kubernetes.engine_kit import NAME, SPACE, WEB, ClusterHarness, engine_on_fake


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[ClusterHarness]:
    with engine_on_fake(tmp_path) as harness:
        harness.record_gvc()
        harness.apply_web()
        harness.wait_for_health()
        yield harness


def is_read_again(harness: ClusterHarness) -> bool:
    """Whether the next observation is made anew."""
    return harness.see_web() is not harness.see_web()


def test_an_observation_of_what_is_well_is_made_once(harness: ClusterHarness) -> None:
    assert not is_read_again(harness)
    assert harness.do(harness.engine.observe_some([Key.parse(WEB)]))[0] is harness.see_web()


def test_what_is_not_well_is_read_each_time(harness: ClusterHarness) -> None:
    harness.server.pods.script(f"{SPACE}/*", "Unready")
    replace_pod(harness)
    harness.until(lambda: not harness.see_web().health.is_good, "it is not ready")
    assert is_read_again(harness)


def replace_pod(harness: ClusterHarness) -> None:
    harness.server.delete("Pod", harness.names("Pod")[0], SPACE)


def change_deployment(harness: ClusterHarness) -> None:
    harness.server.patch("Deployment", NAME, SPACE, {"metadata": {"annotations": {DIGEST: "another"}}})


def delete_service(harness: ClusterHarness) -> None:
    harness.server.delete("Service", NAME, SPACE)


def change_gvc(harness: ClusterHarness) -> None:
    [record] = (record for record in harness.records.applied.items() if str(record.key) == "gvc/shop")
    harness.records.applied.put(msgspec.structs.replace(record, version=record.version + 1))


def record_state(harness: ClusterHarness) -> None:
    """As after the recorded restarts, executions and times of versions have changed."""
    seen, key = harness.see_web(), Key.parse(WEB)
    deployment = read_deployment(seen.state)
    assert deployment is not None
    versions = tuple(
        msgspec.structs.replace(version, created="2020-01-01T00:00:00Z") for version in deployment.status.versions
    )
    status = msgspec.structs.replace(deployment.status, versions=versions)
    state = msgspec.json.encode(msgspec.structs.replace(deployment, status=status))
    harness.records.applied.update_seen(key, harness.location, Health.HEALTHY, state)


CHANGES = (replace_pod, change_deployment, delete_service, change_gvc, record_state)


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_a_change_is_seen(harness: ClusterHarness, change: Callable[[ClusterHarness], None]) -> None:
    before: Observation = harness.see_web()
    assert not is_read_again(harness)
    change(harness)
    harness.until(lambda: harness.see_web() != before, "the observation is another")
