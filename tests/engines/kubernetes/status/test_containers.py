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


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        ("2026-11-30 08:00:00 cannot log in with hunter2", "its program failed"),
        ("", "its program failed"),
        ('command "check" timed out', 'command "check" timed out'),
        ("rpc error: no such container", "rpc error: no such container"),
    ],
)
def test_what_the_program_of_a_probe_printed_is_not_shown(words: str, shown: str) -> None:
    part = {**PART, "readinessProbe": {"exec": {"command": ["check"]}}}
    event = ClusterEvent("Unhealthy", f"Readiness probe failed: {words}", NOW + 10, container="main")
    state = read_container(ContainerInput("main", part, run_from(0), (event,), NOW, NOW + 20))
    assert state.message == f"the readiness probe failed: {shown}"


@pytest.mark.parametrize("words", ["rpc error: no manifest for app:1", "rpc error: no route to 192.0.2.1"])
def test_an_image_that_cannot_be_pulled_has_one_message_for_all_tries(words: str) -> None:
    event = ClusterEvent("Failed", f'Failed to pull image "app:1": {words}', NOW, container="main")
    waits = {
        ("ErrImagePull", words),
        ("ImagePullBackOff", f'Back-off pulling image "app:1": ErrImagePull: {words}'),
        ("ImagePullBackOff", f'Back-off pulling image "app:1": {words}'),
        ("ImagePullBackOff", 'Back-off pulling image "app:1"'),
    }
    states = [
        read_run({"image": "app:1", "state": {"waiting": {"reason": reason, "message": message}}}, event)
        for reason, message in waits
    ]
    named = words if "app:1" in words else f"the image app:1: {words}"
    assert {(state.reason, state.message) for state in states} == {
        (Reason.IMAGE_PULL_FAILED, f"{Reason.IMAGE_PULL_FAILED}: {named}")
    }
