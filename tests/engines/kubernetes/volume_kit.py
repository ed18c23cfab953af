"""A stateful workload with volumes on a fake cluster, whose time and snapshots a test controls."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from reconciler.clock import SystemClock
from reconciler.engines.protocol import Result
from reconciler.engines.volumes import ReplicaVolume, read_volumes
from reconciler.model.key import Key, Kind
from reconciler.planning.plan import Action, Step
from reconciler.times import ExpiryTime, format_iso_time
from tests.engines.kubernetes.engine_kit import SPACE, ClusterHarness, change_body, make_step
from tests.kubernetes.api_server import fake_api_server
from tests.support.plans import step

DATA = Key(Kind.VOLUMESET, SPACE, "data")
CLAIM = "data-web-0"
MINUTES = 60.0
HOURS = 3600.0


class ShiftedClock(SystemClock):
    """The clock of the machine, ``shift`` seconds ahead; its time of day is ``error`` seconds wrong besides."""

    def __init__(self) -> None:
        super().__init__()
        self.shift = 0.0
        self.error = 0.0

    def now(self) -> float:
        """Seconds since the epoch, UTC."""
        return super().now() + self.shift + self.error

    def monotonic(self) -> float:
        """Seconds that never run backwards."""
        return super().monotonic() + self.shift

    def expiry(self) -> ExpiryTime:
        """The time by which things expire."""
        return ExpiryTime(self.now(), self.now())


class VolumeHarness(ClusterHarness):
    """The engine on a fake cluster with VolumeSnapshot; its watcher works only when a test says so."""

    clock: ShiftedClock
    clock_type = ShiftedClock

    def apply_data(self, tags: Mapping[str, str] | None = None, version: int = 1, **spec: Any) -> None:
        """Apply the volume set ``data``."""
        [outcome] = self.apply(make_volume_step(tags, version, **spec)).values()
        assert outcome.result is Result.APPLIED, outcome.message

    def apply_user(self, name: str = "web", version: int = 1, replicas: int = 1) -> None:
        """Apply a stateful workload that mounts ``data``, and wait for its claims."""
        [outcome] = self.apply(make_user_step(name, version, replicas)).values()
        assert outcome.result is Result.APPLIED, outcome.message
        self.until(lambda: self.see_volume(replicas - 1).current_size, "the volumes are seen")
        self.catch_up()

    def pass_time(self, seconds: float) -> None:
        """Let time pass, for the cluster too."""
        self.clock.shift += seconds
        self.server.skew_clock(self.clock.shift)

    def check(self) -> None:
        """Let the watcher of volumes look once, with what the cluster has."""
        self.catch_up()
        self.do(self.engine._watcher.check(self.engine._list_volume_sets()))

    def begin_schedules(self) -> None:
        """Let snapshots be taken and deleted by the schedule, which begins now."""
        self.engine.begin_schedules()
        self.check()

    def snapshots(self) -> list[str]:
        """The names of the snapshots that exist, the oldest first."""
        return [value["metadata"]["annotations"]["reconciler.dev/snapshot-name"] for value in self.list_snapshots()]

    def list_snapshots(self) -> list[dict[str, Any]]:
        """The VolumeSnapshots, the oldest first."""
        values = self.server.objects("VolumeSnapshot", SPACE)
        return sorted(values, key=lambda value: value["metadata"]["creationTimestamp"])

    def finish_snapshots(self) -> None:
        """Let the snapshot controller finish all snapshots."""
        for value in self.list_snapshots():
            if not value.get("status"):
                status = {"readyToUse": True, "restoreSize": "10Gi", "creationTime": format_iso_time(self.clock.now())}
                self.set_status(value, status)
        self.catch_up()

    def fail_snapshots(self, message: str) -> None:
        """Let the snapshot controller fail with all snapshots that it has not finished."""
        for value in self.list_snapshots():
            if not value.get("status", {}).get("readyToUse"):
                self.set_status(value, {"readyToUse": False, "error": {"message": message}})
        self.catch_up()

    def set_status(self, value: dict[str, Any], status: dict[str, Any]) -> None:
        """Set the status of a VolumeSnapshot."""
        name = value["metadata"]["name"]
        self.server.patch("VolumeSnapshot", name, SPACE, {"status": status}, subresource="status")

    def see_data(self) -> str:
        """The state of the volume set, as JSON."""
        [seen] = self.do(self.engine.observe_some([DATA]))
        return seen.state.decode()

    def see_volume(self, index: int = 0) -> ReplicaVolume:
        """A volume as it is shown."""
        state = read_volumes(self.see_data().encode())
        assert state is not None
        return next(volume for volume in state.volumes if volume.index == index)

    def events(self) -> list[str]:
        """The events since the last call."""
        return [f"{event.reason}: {event.message}" for event in self.engine.news()]


def make_volume_step(tags: Mapping[str, str] | None = None, version: int = 1, **spec: Any) -> Step:
    """A step of the volume set ``data``."""
    body = {"kind": "volumeset", "name": "data", "spec": {"initialCapacity": 10, **spec}, "tags": dict(tags or {})}
    return step(str(DATA), action=Action.UPDATE, version=version, body=body, engine="kubernetes")


def make_user_step(
    name: str = "web", version: int = 1, replicas: int = 1, *, tags: Mapping[str, str] | None = None
) -> Step:
    """A step of a stateful workload that mounts ``data``."""
    body = change_body(volumes=[{"uri": "platform://volumeset/data", "path": "/data"}])
    body["tags"] = dict(tags or {})
    body["name"] = name
    body["spec"]["type"] = "stateful"
    body["spec"]["defaultOptions"]["autoscaling"] |= {"minScale": replicas, "maxScale": replicas}
    return make_step(body, version)


def stop_after(harness: VolumeHarness, request_name: str, count: int, done: bool) -> None:
    """End the connection at a request after so many of its kind, before or after it is ``done``, as a kill does."""
    if count:
        harness.server.delay(request_name, 0.001, count)
    if done:
        harness.server.cut(request_name, 0.5, -1)
    else:
        harness.server.fail(request_name, 500, -1)


def end_step(needed: Step) -> Step:
    """The step that deletes what ``needed`` applies."""
    return msgspec.structs.replace(needed, action=Action.DELETE)


@contextmanager
def volumes_on_fake(path: Path, *served: str) -> Iterator[VolumeHarness]:
    """An open engine on a fake cluster that serves ``served`` besides, VolumeSnapshot by default."""
    with fake_api_server(path / "cluster") as server:
        server.run_controllers()
        server.install(*(served or ("VolumeSnapshot",)))
        harness = VolumeHarness(path / "engine", server)
        harness.open()
        try:
            yield harness
        finally:
            harness.close()
