"""The recorded engine: it runs nothing, and records everything as if it ran."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from reconciler.clock import Clock
from reconciler.engines.context import LocationRecords
from reconciler.engines.protocol import Observation, Outcome, Result
from reconciler.engines.recorded.schedules import RecordedSchedules
from reconciler.engines.release_snapshots import snapshot_before, wants_snapshots, with_snapshot
from reconciler.engines.volume_claims import VolumeClaims
from reconciler.engines.volume_commands import CloneVolumeSnapshot, apply_command, parse_volume_command
from reconciler.engines.volumes import VolumeSetState, find_snapshot, make_rejection, read_volumes
from reconciler.engines.workload.deployment import DeploymentTarget, add_run, build_deployment, read_deployment
from reconciler.engines.workload.names import make_alias
from reconciler.engines.workload_commands import RunCronWorkload, check_run, parse_workload_command
from reconciler.errors import EngineError
from reconciler.model.key import PLACED, Key, Kind
from reconciler.model.kinds.volumeset import read_capacity
from reconciler.model.kinds.workload import Specification, mounted_volumesets, read_specification
from reconciler.model.record import Health, Record
from reconciler.planning.plan import Action, Step
from reconciler.reasons import Reason
from reconciler.records.store import Records
from reconciler.times import format_iso_time

_encode = msgspec.json.Encoder().encode


class RecordedEngine:
    """The reference that every other engine is tested against.

    Deployments, versions, volumes, snapshots and executions are computed from the step and from the records of its GVC
    and of the volume sets that it mounts. The executor writes the result of ``perform``; a ``command`` writes by
    itself. ``endpoint_domain`` is the suffix of workload endpoints.
    """

    name = "recorded"
    parallel = 256
    immediate = True
    can_drift = False

    def __init__(self, records: Records, location: str, org: str, endpoint_domain: str, clock: Clock) -> None:
        self._records = records
        self._location = location
        self._org = org
        self._endpoint_domain = endpoint_domain
        self._clock = clock
        self._binding = VolumeClaims(LocationRecords(records, location), org)
        self._schedules = RecordedSchedules(records, location, self.name)

    async def observe(self) -> list[Observation]:
        """The recorded resources of the location."""
        return [
            _as_recorded(record)
            for record in self._records.applied.items()
            if record.location == self._location and record.engine == self.name
        ]

    async def perform(self, step: Step) -> Outcome:
        """Compute the state after ``step``; changes nothing and never waits. Raises EngineError."""
        past = self._binding.record(step.key)
        deployed = step.key.kind is Kind.WORKLOAD and bool(step.location)
        if deployed:
            self._schedules.note_change(step.key, new=past is None or past.engine != self.name)
        spec = read_specification(step.body) if deployed and step.action is not Action.DELETE else None
        also = tuple(self._affected_volumesets(step, spec, past)) if deployed else ()
        if step.action is Action.DELETE:
            return Outcome(step.id, Result.APPLIED, also=also)
        if step.action is Action.REPLACE and past is not None and past.digest != step.digest:
            past = None
        return Outcome(step.id, Result.APPLIED, seen=self._observation(step, spec, past), also=also)

    async def command(
        self,
        key: Key,
        name: str,
        spec: dict[str, Any],
        command_id: str = "",  # noqa: ARG002 - the caller's transaction ends the command too
    ) -> dict[str, Any]:
        """Perform ``runCronWorkload`` or a command on volumes, and record it.

        Returns what the command created or changed. Raises EngineError if it is impossible.
        """
        with self._records.transaction():
            if key.kind is Kind.WORKLOAD:
                return self._run(key, name, spec)
            if key.kind is Kind.VOLUMESET:
                return self._on_volume(key, name, spec)
        raise make_rejection(f"a {key.kind} takes no commands")

    def next_due(self) -> float | None:
        """When an execution is due next, in seconds since the epoch; None if none is."""
        return self._schedules.next_due()

    def record_due(self) -> None:
        """Record the executions that are due now, and an event for missed times. Raises RecordsError."""
        self._schedules.record_due(self._clock.now())

    def _observation(self, step: Step, spec: Specification | None, past: Record | None) -> Observation:
        health, state, alias = (Health.RECORDED if step.location else Health.HEALTHY), b"{}", ""
        if step.key.kind is Kind.GVC:
            alias = (past.alias if past else "") or step.alias or make_alias(self._org, step.key.name)
        elif step.key.kind is Kind.DOMAIN and past is not None:
            # The locations that serve it have reported this, and replace it once something differs.
            state = past.state
        elif step.key.kind in PLACED and not step.location:
            health = Health.UNKNOWN
        elif spec is not None:
            state = self._deployment(step, spec, past)
        elif step.key.kind is Kind.VOLUMESET:
            state = self._binding.state(step, past)
        return Observation(step.key, step.location, health, state, step.digest, step.version, alias)

    def _deployment(self, step: Step, spec: Specification, past: Record | None) -> bytes:
        gvc = self._binding.find_shared(Key(Kind.GVC, "", step.key.gvc))
        alias = (gvc.alias if gvc else "") or step.alias or make_alias(self._org, step.key.gvc)
        target = DeploymentTarget(self._location, alias, gvc.version if gvc else 1, self._endpoint_domain)
        before = read_deployment(past.state) if past else None
        created = format_iso_time(self._clock.now())
        return _encode(build_deployment(step.key, step.version, spec, target, created, before))

    def _affected_volumesets(
        self, step: Step, spec: Specification | None, past: Record | None
    ) -> Iterable[Observation]:
        """The volume sets that change with a workload: bound or released, with snapshots before a new version."""
        changed = {
            affected_volumeset.key: affected_volumeset
            for affected_volumeset in self._binding.affected_volumesets(step, spec, past)
        }
        if past is None or past.version >= step.version or not wants_snapshots(step.body):
            return changed.values()
        revision = self._binding.revision(past.source)
        snapshot = snapshot_before(step.key, step.version, revision, format_iso_time(self._clock.now()))
        for name in mounted_volumesets(read_specification(past.body)):
            key = Key(Kind.VOLUMESET, step.key.gvc, name)
            record = self._binding.record(key)
            if record is not None:
                seen = changed.get(key) or _as_recorded(record)
                state = read_volumes(seen.state) or VolumeSetState(self._location)
                changed[key] = msgspec.structs.replace(seen, state=_encode(with_snapshot(state, snapshot)))
        return changed.values()

    def _run(self, key: Key, name: str, spec: dict[str, Any]) -> dict[str, Any]:
        ask = parse_workload_command(name, spec)
        record = self._target_record(key, ask.location)
        if not isinstance(ask, RunCronWorkload):
            raise make_rejection(f"{key} has no replica at {self._location}: its engine runs nothing")
        deployment = read_deployment(record.state)
        if deployment is None:
            raise make_rejection(f"{key} is not deployed at {self._location}", Reason.NOT_FOUND)
        limit = check_run(key, read_specification(record.body), ask)
        deployment, execution = add_run(deployment, key, format_iso_time(self._clock.now()), limit)
        self._write(record, _encode(deployment))
        return _convert_to_json(execution)

    def _on_volume(self, key: Key, name: str, spec: dict[str, Any]) -> dict[str, Any]:
        ask = parse_volume_command(name, spec)
        record = self._target_record(key, ask.location)
        state = read_volumes(record.state) or VolumeSetState(self._location)
        capacity = read_capacity(record.body)
        if isinstance(ask, CloneVolumeSnapshot):
            source = read_volumes(self._target_record(ask.source_key, ask.location).state)
            find_snapshot(source or VolumeSetState(self._location), ask.volume_index, ask.snapshot_name)
        state = apply_command(state, ask, capacity, format_iso_time(self._clock.now()))
        self._write(record, _encode(state))
        return next(_convert_to_json(volume) for volume in state.volumes if volume.index == ask.volume_index)

    def _target_record(self, key: Key, location: str) -> Record:
        if location != self._location:
            raise make_rejection(f"the command is for {location or 'no location'}; this is {self._location}")
        record = self._binding.record(key)
        if record is None:
            raise EngineError(f"there is no {key} at {location}", reason=Reason.NOT_FOUND, retry=False)
        return record

    def _write(self, record: Record, state: bytes) -> None:
        self._records.applied.update_seen(record.key, record.location, record.health, state)
        self._records.status_queue.add_many(record.source, [record.key])


def _as_recorded(record: Record) -> Observation:
    return Observation(
        record.key, record.location, record.health, record.state, record.digest, record.version, record.alias
    )


def _convert_to_json(value: msgspec.Struct) -> dict[str, Any]:
    """``value`` as plain JSON data."""
    plain: dict[str, Any] = msgspec.json.decode(_encode(value))
    return plain
