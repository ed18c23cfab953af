"""Derives from the records which volumes belong to which workload, in the same way for every engine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from reconciler.engines.context import LocationRecords
from reconciler.engines.protocol import Observation
from reconciler.engines.volumes import VolumeSetState, bind_volumes, read_volumes, release_volumes
from reconciler.model.key import Key, Kind
from reconciler.model.kinds.volumeset import read_capacity
from reconciler.model.kinds.workload import Specification, mounted_volumesets, read_specification, replicas_at
from reconciler.model.platform import VOLUMESET_URI
from reconciler.model.record import Record
from reconciler.planning.plan import Step

_encode = msgspec.json.Encoder().encode
_MOUNT = VOLUMESET_URI.encode()


class VolumeClaims:
    """The volume sets of one location and their users (docs/platform/volumeset.md#who-uses-a-volume-set)."""

    def __init__(self, records: LocationRecords, org: str) -> None:
        self._records = records
        self._location = records.location
        self._org = org

    def state(self, step: Step, past: Record | None) -> bytes:
        """The state of a volume set after ``step``; ``past`` is its earlier record."""
        recorded = self.record(step.key)
        return self._bind_volumes(step.key, step.body, recorded, past)

    def recorded_state(self, record: Record) -> bytes:
        """The state of a recorded volume set, with the volumes that its workload wants now."""
        return self._bind_volumes(record.key, record.body, record, record)

    def _bind_volumes(self, key: Key, body: bytes, recorded: Record | None, past: Record | None) -> bytes:
        there = read_volumes(recorded.state) if recorded else None
        state = (read_volumes(past.state) if past else None) or VolumeSetState(self._location)
        capacity = read_capacity(body)
        user = self._user(key, there.used_by_workload if there else "")
        if user is None:
            return _encode(release_volumes(state, capacity))
        return _encode(bind_volumes(state, self._link(user.key), self._replicas(user), capacity))

    def affected_volumesets(self, step: Step, spec: Specification | None, past: Record | None) -> Iterator[Observation]:
        """The volume sets that change with the workload of ``step``: bound to its replicas, or released.

        ``spec`` is the step's desired spec, None for a delete; ``past`` is the earlier record at the location.
        """
        after = mounted_volumesets(spec) if spec is not None else ()
        before = _list_mounted_volumesets(past.body) if past else ()
        for name in sorted({*after, *before}):
            record = self.record(Key(Kind.VOLUMESET, step.key.gvc, name))
            state = read_volumes(record.state) if record else None
            if record is None or state is None:
                continue
            user = spec if name in after else None
            changed = self._rebound(state, step.key, user, read_capacity(record.body))
            if changed != state:
                yield _make_observation(record, changed)

    def record(self, key: Key) -> Record | None:
        """The record of ``key`` at this location."""
        return self._records.here(key)

    def records(self, keys: Iterable[Key]) -> dict[Key, Record]:
        """The records of ``keys`` at this location, read at once; keys without one are left out."""
        return self._records.list_here(keys)

    def find_shared(self, key: Key) -> Record | None:
        """The record of ``key`` without a location."""
        return self._records.find_shared(key)

    def revision(self, source: str) -> str:
        """The revision that ``source`` applies now."""
        return self._records.revision(source)

    def _user(self, volumeset: Key, user: str) -> Record | None:
        """The workload that uses ``volumeset`` here: the known one, or else one that refers to it."""
        candidates = [user.rpartition("/")[2]] if user else []
        referrers = self._records.referrers(volumeset)
        candidates += [key.name for key in referrers if key.kind is Kind.WORKLOAD and key.gvc == volumeset.gvc]
        for name in candidates:
            record = self.record(Key(Kind.WORKLOAD, volumeset.gvc, name))
            if record is not None and volumeset.name in _list_mounted_volumesets(record.body):
                return record
        return None

    def _replicas(self, record: Record) -> int:
        return replicas_at(read_specification(record.body), self._location)

    def _rebound(self, state: VolumeSetState, key: Key, user: Specification | None, capacity: float) -> VolumeSetState:
        """``state`` bound to the replicas of ``user``, the workload ``key``; None: it does not mount the set."""
        link = self._link(key)
        if user is not None:
            return bind_volumes(state, link, replicas_at(user, self._location), capacity)
        return release_volumes(state, capacity) if state.used_by_workload == link else state

    def _link(self, key: Key) -> str:
        return f"/org/{self._org}/gvc/{key.gvc}/{key.kind}/{key.name}"


def _make_observation(record: Record, state: VolumeSetState) -> Observation:
    return Observation(record.key, record.location, record.health, _encode(state), record.digest, record.version)


def _list_mounted_volumesets(body: bytes) -> tuple[str, ...]:
    """The volume sets that a workload mounts; most mount none, which is detected without decoding the body."""
    return mounted_volumesets(read_specification(body)) if _MOUNT in body else ()
