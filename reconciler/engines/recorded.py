"""The engine whose world is the record: nothing runs, and everything is recorded as if it did."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from reconciler.clock import Clock, iso
from reconciler.engines import commands
from reconciler.engines.alias import make_alias
from reconciler.engines.deployment import Place, deployed, read_deployment
from reconciler.engines.effective import (
    VOLUME_SCHEME,
    mounted_volumesets,
    replicas_at,
    volumeset_spec,
    workload_spec,
)
from reconciler.engines.protocol import Outcome, Result, Seen
from reconciler.engines.volumes import VolumeSetState, bound, read_volumes, refused, released
from reconciler.errors import EngineError
from reconciler.model.key import PLACED, Key, Kind
from reconciler.model.record import Health, Record
from reconciler.planning.plan import Action, Step
from reconciler.records.store import Records

_encode = msgspec.json.Encoder().encode
_MOUNT = VOLUME_SCHEME.encode()


class RecordedEngine:
    """The reference that every other engine is tested against (design: Engines).

    Deployments, versions, volumes, snapshots and executions are computed from the step and from what is recorded of
    its GVC and of the volume sets that it mounts. The executor writes what ``perform`` returns; a ``command`` writes
    by itself. ``endpoint_domain`` ends the endpoints of workloads.
    """

    name = "recorded"
    parallel = 256
    prompt = True
    drifts = False

    def __init__(self, records: Records, location: str, org: str, endpoint_domain: str, clock: Clock) -> None:
        self._records = records
        self._location = location
        self._org = org
        self._endpoint_domain = endpoint_domain
        self._clock = clock

    async def observe(self) -> list[Seen]:
        """What is recorded at the location."""
        return [
            Seen(record.key, record.location, record.health, record.state, record.digest, record.version, record.alias)
            for record in self._records.applied.items()
            if record.location == self._location and record.engine == self.name
        ]

    async def perform(self, step: Step) -> Outcome:
        """Compute what there is once ``step`` is done; changes nothing and never waits. Raises EngineError."""
        past = self._record(step.key)
        also = self._volumes_of(step, past) if step.key.kind is Kind.WORKLOAD and step.location else ()
        if step.action is Action.DELETE:
            return Outcome(step.id, Result.APPLIED, also=tuple(also))
        if step.action is Action.REPLACE and past is not None and past.digest != step.digest:
            past = None
        return Outcome(step.id, Result.APPLIED, seen=self._seen(step, past), also=tuple(also))

    async def command(self, key: Key, name: str, spec: dict[str, Any]) -> dict[str, Any]:
        """Carry out ``runCronWorkload`` or a command on volumes, and record it (documents 1 and 2).

        Returns what the command made or changed. Raises EngineError where it cannot be done as asked.
        """
        with self._records.transaction():
            if key.kind is Kind.WORKLOAD:
                return self._run(key, name, spec)
            if key.kind is Kind.VOLUMESET:
                return self._on_volume(key, name, spec)
        raise refused(f"a {key.kind} takes no commands")

    def _seen(self, step: Step, past: Record | None) -> Seen:
        health, state, alias = Health.HEALTHY, b"{}", ""
        if step.key.kind is Kind.GVC:
            alias = (past.alias if past else "") or step.alias or make_alias(self._org, step.key.name)
        elif step.key.kind in PLACED and not step.location:
            health = Health.UNKNOWN
        elif step.key.kind is Kind.WORKLOAD:
            state = self._deployment(step, past)
        elif step.key.kind is Kind.VOLUMESET:
            state = self._volumeset(step, past)
        return Seen(step.key, step.location, health, state, step.digest, step.version, alias)

    def _deployment(self, step: Step, past: Record | None) -> bytes:
        gvc = self._at(Key(Kind.GVC, "", step.key.gvc), "")
        alias = (gvc.alias if gvc else "") or step.alias or make_alias(self._org, step.key.gvc)
        place = Place(self._location, alias, gvc.version if gvc else 1, self._endpoint_domain)
        before = read_deployment(past.state) if past else None
        created = iso(self._clock.now())
        return _encode(deployed(step.key, step.version, workload_spec(step.body), place, created, before))

    def _volumeset(self, step: Step, past: Record | None) -> bytes:
        recorded = self._record(step.key)
        there = read_volumes(recorded.state) if recorded else None
        state = (read_volumes(past.state) if past else None) or VolumeSetState(self._location)
        capacity = volumeset_spec(step.body).initial_capacity
        user = self._user(step.key, there.used_by_workload if there else "")
        if user is None:
            return _encode(released(state, capacity))
        return _encode(bound(state, self._link(user.key), self._replicas(user), capacity))

    def _user(self, volumeset: Key, known: str) -> Record | None:
        """The workload that uses ``volumeset`` here already: the one it knows, else one that refers to it."""
        candidates = [known.rpartition("/")[2]] if known else []
        for text in self._records.desired.referrers(volumeset):
            key = Key.parse(text)
            if key.kind is Kind.WORKLOAD and key.gvc == volumeset.gvc:
                candidates.append(key.name)
        for name in candidates:
            record = self._record(Key(Kind.WORKLOAD, volumeset.gvc, name))
            if record is not None and volumeset.name in _mounts(record.body):
                return record
        return None

    def _replicas(self, record: Record) -> int:
        return replicas_at(workload_spec(record.body), self._location)

    def _volumes_of(self, step: Step, past: Record | None) -> Iterator[Seen]:
        """The volume sets that change with the workload of ``step``: bound to its replicas, or let go."""
        after = () if step.action is Action.DELETE else _mounts(step.body)
        before = _mounts(past.body) if past else ()
        for name in sorted({*after, *before}):
            record = self._record(Key(Kind.VOLUMESET, step.key.gvc, name))
            state = read_volumes(record.state) if record else None
            if record is None or state is None:
                continue
            changed = self._with_user(state, step, name in after, volumeset_spec(record.body).initial_capacity)
            if changed != state:
                yield self._seen_volumes(record, changed)

    def _with_user(self, state: VolumeSetState, step: Step, mounted: bool, capacity: float) -> VolumeSetState:
        link = self._link(step.key)
        if mounted:
            return bound(state, link, replicas_at(workload_spec(step.body), self._location), capacity)
        return released(state, capacity) if state.used_by_workload == link else state

    def _seen_volumes(self, record: Record, state: VolumeSetState) -> Seen:
        return Seen(record.key, record.location, record.health, _encode(state), record.digest, record.version)

    def _run(self, key: Key, name: str, spec: dict[str, Any]) -> dict[str, Any]:
        ask = commands.parse_run(name, spec)
        record = self._commanded(key, ask.location)
        deployment = read_deployment(record.state)
        if deployment is None:
            raise refused(f"{key} is not deployed at {self._location}", "NotFound")
        at = iso(self._clock.now())
        deployment, execution = commands.run_cron(deployment, key, workload_spec(record.body), ask, at)
        self._write(record, _encode(deployment))
        return _plain(execution)

    def _on_volume(self, key: Key, name: str, spec: dict[str, Any]) -> dict[str, Any]:
        ask = commands.parse_volume_command(name, spec)
        record = self._commanded(key, ask.location)
        state = read_volumes(record.state) or VolumeSetState(self._location)
        capacity = volumeset_spec(record.body).initial_capacity
        state = commands.on_volumes(state, ask, capacity, iso(self._clock.now()))
        self._write(record, _encode(state))
        return next(_plain(volume) for volume in state.volumes if volume.index == ask.volume_index)

    def _commanded(self, key: Key, location: str) -> Record:
        if location != self._location:
            raise refused(f"the command is for {location or 'no location'}; this is {self._location}")
        record = self._record(key)
        if record is None:
            raise EngineError(f"there is no {key} at {location}", reason="NotFound", retry=False)
        return record

    def _write(self, record: Record, state: bytes) -> None:
        self._records.applied.update_seen(record.key, record.location, record.health, state)
        self._records.pending.add_many(record.source, [record.key])

    def _record(self, key: Key) -> Record | None:
        return self._at(key, self._location)

    def _at(self, key: Key, location: str) -> Record | None:
        return next((record for record in self._records.applied.get(key) if record.location == location), None)

    def _link(self, key: Key) -> str:
        return f"/org/{self._org}/gvc/{key.gvc}/{key.kind}/{key.name}"


def _mounts(body: bytes) -> tuple[str, ...]:
    """The volume sets that a workload mounts; most mount none, which is seen without reading the body."""
    return mounted_volumesets(workload_spec(body)) if _MOUNT in body else ()


def _plain(value: msgspec.Struct) -> dict[str, Any]:
    """``value`` as it reads in JSON."""
    plain: dict[str, Any] = msgspec.json.decode(_encode(value))
    return plain
