"""Volumes of a cluster that grow as they fill, where the cluster reports how full they are."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from reconciler.engines.engine_state import engine_conditions
from reconciler.engines.kubernetes.status.fields import parse_quantity
from reconciler.model.quantity import GIB
from reconciler.reasons import ConditionType, Reason
from tests.engines.kubernetes.engine_kit import SPACE
from tests.engines.kubernetes.volume_kit import CLAIM, MINUTES, VolumeHarness, volumes_on_fake

GROWTH = {"maxCapacity": 100, "minFreePercentage": 20, "scalingFactor": 1.5}
PLACE = f"{SPACE}/{CLAIM}"


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[VolumeHarness]:
    with volumes_on_fake(tmp_path) as harness:
        harness.server.create(
            {
                "apiVersion": "storage.k8s.io/v1",
                "kind": "StorageClass",
                "metadata": {"name": "general-purpose-ssd-ext4"},
                "provisioner": "test",
                "allowVolumeExpansion": True,
            }
        )
        harness.apply_data(autoscaling=GROWTH)
        harness.apply_user()
        yield harness


def read_size(harness: VolumeHarness) -> float:
    """The requested size of the claim, in GB."""
    claim = harness.server.object("PersistentVolumeClaim", CLAIM, SPACE)
    return parse_quantity(claim["spec"]["resources"]["requests"]["storage"]) / GIB


def list_limitations(harness: VolumeHarness) -> str:
    """The sentences about what the cluster does not do for the volume set."""
    conditions = engine_conditions(harness.see_data().encode())
    return " ".join(condition.message for condition in conditions if condition.type == ConditionType.NOT_ENFORCED)


def test_a_volume_that_fills_grows_and_waits_before_it_grows_again(harness: VolumeHarness) -> None:
    harness.server.measure(PLACE, 5 * GIB)
    harness.check()
    assert (read_size(harness), harness.see_volume().current_bytes_used) == (10, 5 * GIB)
    harness.server.measure(PLACE, 9 * GIB)
    harness.check()
    assert read_size(harness) == 10, "kubelets measure about once a minute"
    harness.pass_time(2 * MINUTES)
    harness.check()
    assert read_size(harness) == 16.875
    assert [event.partition(":")[0] for event in harness.events()] == [Reason.VOLUME_EXPANDED]
    harness.server.measure(PLACE, 16 * GIB)
    harness.check()
    assert read_size(harness) == 16.875
    harness.pass_time(2 * MINUTES)
    harness.check()
    assert read_size(harness) == 30
    assert list_limitations(harness) == ""


def test_a_grown_volume_is_no_drift_and_stays(harness: VolumeHarness) -> None:
    harness.server.measure(PLACE, 9 * GIB)
    harness.check()
    harness.apply_data(version=2, autoscaling=GROWTH)
    harness.apply_user(version=2)
    assert read_size(harness) == 16.875
    assert harness.see_volume().current_size == 16.875


def test_a_class_that_does_not_grow_is_a_condition_and_asked_rarely(harness: VolumeHarness) -> None:
    harness.server.patch("StorageClass", "general-purpose-ssd-ext4", "", {"allowVolumeExpansion": False})
    harness.server.measure(PLACE, 9 * GIB)
    harness.server.clear_requests()
    for _ in range(3):
        harness.check()
    assert len(harness.server.requests_of("get", "storageclasses.storage.k8s.io")) == 1
    messages = [condition.message for condition in engine_conditions(harness.see_data().encode())]
    assert any("does not allow volume expansion" in message for message in messages)


def test_a_cluster_that_does_not_report_it_is_named_and_asked_rarely(harness: VolumeHarness) -> None:
    assert list_limitations(harness) == ""
    harness.server.clear_requests()
    for _ in range(3):
        harness.pass_time(2 * MINUTES)
        harness.check()
    assert "does not let the daemon read how full they are" in list_limitations(harness)
    assert len([request for request in harness.server.requests if "/proxy/" in request.path]) == 1
    harness.server.measure(PLACE, 9 * GIB)
    harness.pass_time(10 * MINUTES)
    harness.check()
    assert list_limitations(harness) == ""
    assert read_size(harness) == 16.875


def test_a_kubelet_that_does_not_answer_is_a_condition_until_it_does(harness: VolumeHarness) -> None:
    harness.server.measure(PLACE, 5 * GIB)
    harness.check()
    words = "error trying to reach service: dial tcp: connection refused"
    harness.server.fail("GET /api/v1/nodes/*/stats/summary", 503, times=-1, message=words)
    for _ in range(2):
        assert not engine_conditions(harness.see_data().encode()), "a kubelet that starts anew is silent for a moment"
        harness.pass_time(2 * MINUTES)
        harness.check()
    [condition] = engine_conditions(harness.see_data().encode())
    assert (condition.type, condition.reason) == (ConditionType.VOLUME_CHECK_FAILING, Reason.VOLUME_CHECK_FAILED)
    assert condition.message.endswith(f"read the usage of volumes at node-1: {words}")
    assert harness.see_volume().current_bytes_used == 5 * GIB, "the last figure stays"
    assert len(harness.events()) == 1
    harness.server.heal()
    harness.server.measure(PLACE, 9 * GIB)
    harness.pass_time(2 * MINUTES)
    harness.check()
    kinds = [condition.type for condition in engine_conditions(harness.see_data().encode())]
    assert ConditionType.VOLUME_CHECK_FAILING not in kinds
    assert read_size(harness) == 16.875


def test_a_volume_that_is_nearly_full_has_a_condition_until_it_has_room(harness: VolumeHarness) -> None:
    harness.apply_data(version=2)
    harness.apply_user(version=2)
    shown = []
    for percent in (89, 91, 86, 84):
        harness.server.measure(PLACE, percent * GIB // 10)
        harness.pass_time(2 * MINUTES)
        harness.check()
        conditions = engine_conditions(harness.see_data().encode())
        shown.append([each.message for each in conditions if each.type is ConditionType.VOLUME_NEARLY_FULL])
    full = ["less than 15 % of volume 0 (10 GB) is free"]
    assert shown == [[], full, full, []]
