"""Reports what a cluster has of the resources of a location, as observations."""

from __future__ import annotations

import asyncio
import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from reconciler.engines.kubernetes.applying import RUNS
from reconciler.engines.kubernetes.client.objects import (
    AUTOSCALER,
    CLAIM,
    EVENT,
    JOB,
    POD,
    VOLUME_SNAPSHOT,
    KubeObject,
    ObjectKind,
)
from reconciler.engines.kubernetes.mirror import MirroredObject
from reconciler.engines.kubernetes.parts import ClusterParts
from reconciler.engines.kubernetes.rendering.names import DIGEST, OBJECTS, VERSION, format_label, workload_name
from reconciler.engines.kubernetes.status.containers import EVENT_SECONDS
from reconciler.engines.kubernetes.status.fields import ObjectPart, find_condition, is_true, read_seconds
from reconciler.engines.kubernetes.status.hooks import follow_pods, is_awaited
from reconciler.engines.kubernetes.status.news import (
    EndingPods,
    WorkloadMoment,
    find_last_news,
    find_news,
    read_recorded_moment,
)
from reconciler.engines.kubernetes.status.rollout import LiveWorkload, read_pods
from reconciler.engines.kubernetes.status.snapshots import read_index
from reconciler.engines.kubernetes.status.volumes import LiveVolumes, volumeset_state
from reconciler.engines.kubernetes.status.workload import StatusContext, next_status_time, workload_status
from reconciler.engines.kubernetes.volumes.watcher import VolumeWatcher
from reconciler.engines.protocol import Observation
from reconciler.engines.volume_claims import VolumeClaims
from reconciler.engines.volumes import VolumeSetState, read_volumes
from reconciler.engines.workload.deployment import Deployment, DeploymentTarget, read_deployment
from reconciler.engines.workload.names import make_alias
from reconciler.engines.workload.spec import Type, WorkloadSpec
from reconciler.engines.workload.spec_builder import AppliedWorkload, workload_spec
from reconciler.engines.workload.status import (
    DeploymentCondition,
    list_limitations,
    make_condition,
    with_condition,
)
from reconciler.errors import EngineError
from reconciler.iteration import iterate_batches
from reconciler.model.key import Key, Kind
from reconciler.model.kinds.volumeset import read_specification as read_volumeset
from reconciler.model.kinds.workload import mounted_volumesets, read_specification
from reconciler.model.record import Health, Record
from reconciler.reasons import ConditionType, Reason

EVENTS_SECONDS = 5.0
"""Seconds for which the events of a namespace are not asked for again, and as much more for each thousand of them."""
NEW_EVENTS_SECONDS = 0.5
"""The same, just after a pod is no longer ready."""
HOOK_EVENTS_SECONDS = 1.0
"""Seconds after which the events of a namespace are read again for a hook that runs or has ended."""
BATCH = 20
"""Workloads that are observed before other work goes on."""

_encode = msgspec.json.Encoder().encode


class ClusterObserver:
    """Makes observations from what ``mirror`` has; it asks the cluster only about pods that are not well."""

    def __init__(self, parts: ClusterParts, volumes: VolumeWatcher, report: Callable[[Key, Reason, str], None]) -> None:
        self._context, self._api, self._mirror, self._desired, self._applier = parts
        self._volumes = volumes
        self._report = report
        self._moments: dict[Key, WorkloadMoment] = {}
        self._claims = VolumeClaims(parts.context.records, parts.context.settings.org)
        self._events: dict[str, _NamespaceEvents] = {}
        self._times: dict[Key, float] = {}
        self._specs: dict[Key, _DerivedSpec] = {}
        self._past: dict[Key, _PastObservation] = {}

    def list_followed(self) -> frozenset[Key]:
        """The workloads of which something may be news, also those that are gone."""
        return frozenset(self._moments)

    def take_due(self) -> tuple[set[Key], float | None]:
        """The workloads whose status changes now by itself, and when the next one does, in seconds since the epoch."""
        now = self._context.clock.now()
        due = {key for key, at in self._times.items() if at <= now}
        for key in due:
            del self._times[key]
        return due, min(self._times.values(), default=None)

    def _note_time(self, key: Key, at: float | None) -> None:
        if at is None:
            self._times.pop(key, None)
        else:
            self._times[key] = at

    async def observe(self, keys: Iterable[Key]) -> list[Observation]:
        """What exists of ``keys``, with the volume sets of workloads among them. Raises RecordsError."""
        keys = list(keys)
        volumesets = {key for key in keys if key.kind is Kind.VOLUMESET}
        observations = []
        for number, batch in enumerate(iterate_batches((key for key in keys if key.kind is Kind.WORKLOAD), BATCH)):
            if number:
                await asyncio.sleep(0)
            records = self._claims.records(batch)
            gvcs = {gvc: self._read_gvc(gvc) for gvc in {key.gvc for key in batch}}
            for key in batch:
                record = records.get(key)
                observation = await self._observe_workload(key, record, gvcs[key.gvc])
                if observation is not None:
                    observations.append(observation)
                if record is not None:
                    names = self._derive_spec(key, record).volumesets
                    volumesets |= {Key(Kind.VOLUMESET, key.gvc, name) for name in names}
                else:
                    self._specs.pop(key, None)
        observations += filter(None, (self._observe_volume_set(key) for key in sorted(volumesets)))
        return observations

    def observe_ending(self, key: Key) -> Observation | None:
        """A workload that is being deleted; None if it is not recorded."""
        record = self._claims.record(key)
        if record is None:
            return None
        return Observation(key, record.location, Health.DELETING, record.state, record.digest, record.version)

    def is_applied(self, running: MirroredObject | None, digest: str) -> bool:
        """Whether ``running`` is there, was applied with ``digest``, and does not end."""
        return running is not None and not running.ending and running.annotations.get(DIGEST) == digest

    async def _observe_workload(self, key: Key, record: Record | None, gvc: _Gvc) -> Observation | None:
        if record is not None and self._volumes.is_away(key):
            return Observation(key, self._context.location, Health.LOADING, record.state, record.digest, record.version)
        running = self._desired.find_running(key)
        inputs = self._list_inputs(key, record, gvc) if record is not None and running is not None else None
        past = self._past.get(key)
        if past is not None and past.inputs == inputs and self._context.clock.now() < past.until:
            return past.observation
        self._past.pop(key, None)
        if running is None:
            await self._note_last_news(key, record, gvc)
            items = self._mirror.of_key(key)
            if record is None or not any(item.id.kind is POD for item in items):
                return None
            # Its object is gone, and its pods still end.
            return Observation(key, self._context.location, Health.DELETING, record.state)
        digest, version = self._read_marks(key, running)
        if record is None:
            return Observation(key, self._context.location, Health.UNKNOWN, b"{}", digest, version)
        live, context = await self._read_live(key, record, running, gvc), self._status_context(key, record, gvc)
        pods = read_pods(live, context.now)
        health, deployment = workload_status(live, pods, context)
        self._note_news(record, live, deployment, context.now)
        times = (next_status_time(live, pods, context), self._next_reading(key, live.pods, context.now))
        until = min(filter(None, times), default=None)
        self._note_time(key, until)
        if running.ending:
            health = Health.DELETING
        elif live.primary is None and live.spec.suspended:
            # Nothing has to run, so nothing exists that could.
            health = Health.HEALTHY
        state = _encode(deployment)
        for condition in self._list_unknown(running):
            state = with_condition(state, condition)
        seen = Observation(key, self._context.location, health, state, digest, version)
        if inputs is not None and live.spec.type is not Type.CRON and _is_well(live):
            self._past[key] = _PastObservation(inputs, math.inf if until is None else until, seen)
        return seen

    def _list_inputs(self, key: Key, record: Record, gvc: _Gvc) -> tuple[object, ...] | None:
        """What the observation of a workload that is well follows from, but for the time; None if that is unsure."""
        if self._mirror.failures():
            return None
        names = self._derive_spec(key, record).volumesets
        keys = (key, Key(Kind.GVC, "", key.gvc), *(Key(Kind.VOLUMESET, key.gvc, name) for name in names))
        return (
            (record.digest, record.version, record.state),
            gvc,
            self._desired.limitations(record),
            self._desired.table_of(key).endpoints.get(key, ()),
            *map(self._mirror.revision_of, keys),
        )

    def _list_unknown(self, running: MirroredObject) -> Iterator[DeploymentCondition]:
        """A condition for the kinds of objects of a workload that the cluster does not show, with its words."""
        names = {name.partition("/")[0] for name in running.annotations.get(OBJECTS, "").split(",")}
        errors = [error for kind, error in self._mirror.list_unknown().items() if kind.kind in names]
        if errors:
            message = "; ".join(dict.fromkeys(map(str, errors)))
            yield make_condition(ConditionType.OBJECTS_UNKNOWN, errors[0].reason, message)

    def expect_news(self, key: Key) -> None:
        """Report all that happens to a workload that is about to be created."""
        self._moments[key] = WorkloadMoment()

    def _note_news(self, record: Record, live: LiveWorkload, deployment: Deployment, now: float) -> None:
        """Report what happened since the last observation, by this process or the one before it."""
        before = self._moments.get(record.key) or read_recorded_moment(record.state, live, now)
        self._moments[record.key], news = find_news(before, live, deployment, now)
        for reason, message in news:
            self._report(record.key, reason, message)

    async def _note_last_news(self, key: Key, record: Record | None, gvc: _Gvc) -> None:
        """Report what pods of a workload that is deleted do at their end; their preStop hooks run as ever."""
        before, pods, now = self._moments.pop(key, None), self._decode(key, POD), self._context.clock.now()
        self._note_time(key, None)
        if before is None or not before.hooks.pods.union(before.hooks.gone):
            return
        events = (await self._read_events(self._desired.namespace_of(key.gvc), now)).about(workload_name(key.name))
        names = _name_containers(self._read_spec(key, record, gvc)) if record is not None else {}
        after, news = find_last_news(before, EndingPods(pods, events, names), now)
        for reason, message in news:
            self._report(key, reason, message)
        if pods or after.hooks.gone:
            self._moments[key] = after
            self._note_time(key, self._next_reading(key, pods, now))

    def _next_reading(self, key: Key, pods: Sequence[ObjectPart], now: float) -> float | None:
        """When to look for the event of a hook again; None if none may come."""
        return now + HOOK_EVENTS_SECONDS if is_awaited(self._moments[key].hooks, pods, now) else None

    def _read_marks(self, key: Key, running: MirroredObject) -> tuple[str, int]:
        """Digest and version as applied; no digest if others have changed an object since."""
        text = running.annotations.get(VERSION, "")
        digest = running.annotations.get(DIGEST, "")
        gvc = Key(Kind.GVC, "", key.gvc)
        changed = self._applier.find_changes(key) or self._applier.find_changes(gvc)
        return "" if changed else digest, int(text) if text.isdecimal() else 0

    async def _read_live(self, key: Key, record: Record, running: MirroredObject, gvc: _Gvc) -> LiveWorkload:
        pods, spec = self._decode(key, POD), self._read_spec(key, record, gvc)
        live = LiveWorkload(
            spec=spec,
            primary=running.decode() if running.id.kind in RUNS else None,
            pods=pods,
            jobs=self._decode(key, JOB),
            claims=tuple(self._claims_of(key, self._derive_spec(key, record).volumesets)),
            autoscaler=next(iter(self._decode(key, AUTOSCALER)), None),
            names=_name_containers(spec),
        )
        now = self._context.clock.now()
        hooks = follow_pods(self._moments.get(key, WorkloadMoment()).hooks, pods, now)
        may_fail = is_awaited(hooks, pods, now)
        if live.spec.type is not Type.CRON and _is_well(live) and not may_fail:
            return live
        since = now if may_fail else max(map(_unready_since, pods), default=0.0)
        events = (await self._read_events(running.id.namespace, since)).about(running.id.name, live.claims)
        return msgspec.structs.replace(live, events=events)

    def _read_spec(self, key: Key, record: Record, gvc: _Gvc) -> WorkloadSpec:
        derived = self._derive_spec(key, record)
        if derived.spec.gvc_version == gvc.version:
            return derived.spec
        return msgspec.structs.replace(derived.spec, gvc_version=gvc.version)

    def _derive_spec(self, key: Key, record: Record) -> _DerivedSpec:
        """What follows from a record alone, read once for each version of it."""
        derived = self._specs.get(key)
        if derived is None or (derived.spec.digest, derived.spec.version) != (record.digest, record.version):
            spec = read_specification(record.body)
            applied = AppliedWorkload(key, self._context.location, spec, record.version, record.digest)
            derived = self._specs[key] = _DerivedSpec(workload_spec(applied, ""), mounted_volumesets(spec))
        return derived

    def _decode(self, key: Key, kind: ObjectKind) -> tuple[KubeObject, ...]:
        items = (item for item in self._mirror.of_key(key) if item.id.kind is kind)
        return tuple(item.decode() for item in sorted(items, key=_get_place))

    def _claims_of(self, key: Key, names: Iterable[str]) -> Iterator[KubeObject]:
        for name in names:
            yield from self._decode(Key(Kind.VOLUMESET, key.gvc, name), CLAIM)

    def _status_context(self, key: Key, record: Record, gvc: _Gvc) -> StatusContext:
        past = read_deployment(record.state)
        settings = self._context.settings
        versions = past.status.versions if past is not None else ()
        return StatusContext(
            target=DeploymentTarget(self._context.location, gvc.alias, gvc.version, settings.endpoint_domain),
            now=self._context.clock.now(),
            limitations=self._desired.limitations(record),
            address=f"{workload_name(key.name)}.{self._desired.namespace_of(key.gvc)}.svc",
            created={version.workload: version.created for version in versions},
            domain_endpoints=self._desired.table_of(key).endpoints.get(key, ()),
            past=past.status.job_executions if past is not None else (),
            restarts={
                (version.workload, name): container.get("restarts", {})
                for version in versions
                for name, container in version.containers.items()
            },
        )

    def _read_gvc(self, name: str) -> _Gvc:
        """The alias and the version of a GVC."""
        record = self._claims.find_shared(Key(Kind.GVC, "", name))
        alias = record.alias if record is not None else ""
        return _Gvc(alias or make_alias(self._context.settings.org, name), record.version if record else 1)

    async def _read_events(self, namespace: str, since: float) -> _NamespaceEvents:
        """The events of a namespace, with those of pods that are not ready ``since`` then, in seconds since the epoch.

        Without them, messages are shorter; nothing else depends on them.
        """
        now = self._context.clock.monotonic()
        events = self._events.get(namespace, _NamespaceEvents())
        # Such a time has whole seconds, and its event may come a little later.
        is_new = self._context.clock.now() - (now - events.at) <= since + EVENT_SECONDS
        if now - events.at < (NEW_EVENTS_SECONDS if is_new else EVENTS_SECONDS) * (1 + len(events.items) / 1000):
            return events
        try:
            page = await self._api.list(
                EVENT, namespace=namespace, fields="reason!=Scheduled,reason!=Pulled,reason!=Created,reason!=Started"
            )
        except EngineError:
            return events
        events = _NamespaceEvents.read(page.items, now)
        self._events[namespace] = events
        return events

    def _observe_volume_set(self, key: Key) -> Observation | None:
        record = self._claims.record(key)
        claims = self._decode(key, CLAIM)
        if record is None:
            # What controllers make names no instance: in a namespace of another one it is not ours.
            ours = claims and self._applier.owns_namespace(self._desired.namespace_of(key.gvc))
            return Observation(key, self._context.location, Health.UNKNOWN) if ours else None
        recorded = self._claims.recorded_state(record)
        claimed = read_volumes(recorded) or VolumeSetState(self._context.location)
        used = {index: self._volumes.used_bytes(claim) for claim in claims if (index := read_index(claim)) is not None}
        live = LiveVolumes(claimed, claims, self._decode(key, VOLUME_SNAPSHOT), used=used)
        health, state = volumeset_state(live)
        for condition in list_limitations(self._volumes.limitations(read_volumeset(record.body))):
            state = with_condition(state, condition)
        seen = Observation(key, self._context.location, health, state, record.digest, record.version)
        return self._volumes.with_conditions(seen, recorded)


class _Gvc(NamedTuple):
    alias: str
    version: int


class _PastObservation(NamedTuple):
    """What was observed with ``inputs``, and is as true ``until`` then, in seconds since the epoch."""

    inputs: tuple[object, ...]
    until: float
    observation: Observation


class _DerivedSpec(NamedTuple):
    """The specification in a record of a workload, and the names of the volume sets that it mounts."""

    spec: WorkloadSpec
    volumesets: Sequence[str]


class _NamespaceEvents(NamedTuple):
    """The events of a namespace, ordered by the ``names`` of their objects, as they were ``at`` then (monotonic)."""

    at: float = float("-inf")
    names: Sequence[str] = ()
    items: Sequence[KubeObject] = ()

    @classmethod
    def read(cls, contents: Iterable[bytes], at: float) -> _NamespaceEvents:
        """The events of a list, as JSON."""
        events: list[KubeObject] = [msgspec.json.decode(content) for content in contents]
        events.sort(key=_get_subject)
        return cls(at, [_get_subject(event) for event in events], events)

    def about(self, name: str, claims: Iterable[ObjectPart] = ()) -> tuple[KubeObject, ...]:
        """Those that may be about an object of a workload: its pods and their controllers begin with its name."""
        others = [title for claim in claims if not (title := claim["metadata"]["name"]).startswith(name)]
        about_others = (event for title in others for event in self._between(title, f"{title}\0"))
        return (*self._between(name, f"{name}\U0010ffff"), *about_others)

    def _between(self, first: str, end: str) -> Sequence[KubeObject]:
        return self.items[bisect_left(self.names, first) : bisect_left(self.names, end)]


def _get_place(item: MirroredObject) -> tuple[str, str]:
    """What orders objects of one kind."""
    return item.id.namespace, item.id.name


def _get_subject(event: KubeObject) -> str:
    """The name of the object that an event is about."""
    return str(event.get("involvedObject", {}).get("name", ""))


def _name_containers(spec: WorkloadSpec) -> dict[str, str]:
    """The containers of a workload by their names in pods."""
    return {format_label(container.name): container.name for container in spec.containers}


def _unready_since(pod: KubeObject) -> float:
    """When a pod became not ready, in seconds since the epoch; 0 if it is ready, or nobody knows."""
    ready = find_condition(pod, ConditionType.READY)
    return 0.0 if is_true(ready) else read_seconds(ready, "lastTransitionTime")


def _is_well(live: LiveWorkload) -> bool:
    """Whether all pods are ready, so that nobody asks why not."""
    for pod in live.pods:
        if not is_true(find_condition(pod, ConditionType.READY)):
            return False
    status = (live.primary or {}).get("status") or {}
    return not any(entry.get("type") == "ReplicaFailure" for entry in status.get("conditions") or ())
