"""Lifecycle hooks on a cluster: a failure is reported, also of the last pod of a workload that is deleted."""

from __future__ import annotations

from pathlib import Path

from reconciler.engines.protocol import Result
from reconciler.reasons import Reason
from tests.engines.kubernetes.engine_kit import WEB, ClusterHarness, engine_on_fake


def find_failures(harness: ClusterHarness) -> list[str]:
    """The keys of the events about hooks since the last call."""
    return [str(event.key) for event in harness.engine.news() if event.reason == Reason.PRE_STOP_FAILED]


def test_a_hook_of_the_last_pod_is_reported_after_the_record_is_gone(tmp_path: Path) -> None:
    with engine_on_fake(tmp_path) as harness:
        lifecycle = {"preStop": {"exec": {"command": ["false"]}}}
        assert harness.apply_web(lifecycle=lifecycle).result is Result.APPLIED
        harness.wait_for_health()
        harness.until(lambda: harness.delete_web().message == "", "it is deleted")
        assert harness.names("Pod") == []
        reported: list[str] = []
        harness.until(
            lambda: harness.see() == {} and (reported.extend(find_failures(harness)) or reported), "it is seen"
        )
        assert set(reported) == {WEB}
