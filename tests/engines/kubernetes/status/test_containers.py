"""Why a container is not ready, or ended: also where an event is late, missing, or about an earlier run."""

from __future__ import annotations

from typing import Any

import pytest

from reconciler.engines.kubernetes.status.containers import (
    EVENT_SECONDS,
    ContainerInput,
    ContainerState,
    read_container,
)
from reconciler.engines.kubernetes.status.events import ClusterEvent
from reconciler.reasons import Reason
from reconciler.times import format_iso_time

NOW = 1_800_000_000.0
PART = {"name": "main", "image": "app:1", "readinessProbe": {"httpGet": {}}, "livenessProbe": {"failureThreshold": 3}}


def read_run(status: dict[str, Any], *events: ClusterEvent, changed: float = 0.0, now: float = 100.0) -> ContainerState:
    """The state of a container; times are seconds after NOW."""
    return read_container(ContainerInput("main", PART, status, events, NOW + changed, NOW + now))


def run_from(seconds: float, **fields: Any) -> dict[str, Any]:
    return {
        "ready": False,
        "restartCount": 0,
        "state": {"running": {"startedAt": format_iso_time(NOW + seconds)}},
        **fields,
    }


def ended(begun: float, end: float, code: int) -> dict[str, Any]:
    times = {"startedAt": format_iso_time(NOW + begun), "finishedAt": format_iso_time(NOW + end)}
    return {"terminated": {"exitCode": code, "reason": "Error" if code else "Completed", **times}}


def liveness(at: float) -> ClusterEvent:
    return ClusterEvent(
        "Unhealthy", "Liveness probe failed: HTTP probe failed with statuscode: 500", NOW + at, 3, "", "main"
    )


@pytest.mark.parametrize(("now", "failing"), [(50 + EVENT_SECONDS - 1, False), (50 + EVENT_SECONDS, True)])
def test_a_container_that_is_no_longer_ready_fails_also_without_an_event(now: float, failing: bool) -> None:
    state = read_run(run_from(0), changed=50, now=now)
    assert state.failing is failing
    assert bool(state.message) is failing


def test_a_container_that_was_never_ready_has_a_minute() -> None:
    assert not read_run(run_from(0), changed=0, now=59).failing
    assert read_run(run_from(0), changed=0, now=61).failing


@pytest.mark.parametrize("code", [0, 143])
def test_the_kubelet_ends_a_container_whatever_its_exit_code_is(code: int) -> None:
    state = read_run(run_from(60, restartCount=1, lastState=ended(0, 60, code)), liveness(59), now=62)
    assert state.last is not None
    assert (state.last.reason, state.last.message) == (Reason.LIVENESS_FAILED, "the liveness probe failed: HTTP 500")


def test_a_failed_probe_of_the_run_before_ends_no_later_one() -> None:
    state = read_run(run_from(70, restartCount=2, lastState=ended(60, 70, 4)), liveness(59), now=72)
    assert state.last is not None
    assert state.last.reason == Reason.ERROR
