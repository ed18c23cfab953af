"""What clusters say of a plan before anything is applied: decided from the records, and asked of those that answer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import NamedTuple, TypeVar

from reconciler.engines.context import LocationRecords
from reconciler.engines.kubernetes.applying import ObjectApplier, explain_ending
from reconciler.engines.kubernetes.client.api import KubeApi
from reconciler.engines.kubernetes.client.objects import (
    ALWAYS_SERVED,
    CLAIM,
    JOB,
    NAMESPACE,
    POD,
    STATEFUL_SET,
    VOLUME_SNAPSHOT,
    KubeObject,
    ObjectId,
    ObjectKind,
    id_of,
)
from reconciler.engines.kubernetes.desired import AppliedResource
from reconciler.engines.kubernetes.features import read_features
from reconciler.engines.kubernetes.immutable_fields import list_immutable_changes
from reconciler.engines.kubernetes.manifests import make_renderer
from reconciler.engines.kubernetes.mirror import mirror_object
from reconciler.engines.kubernetes.ownership import make_owner
from reconciler.engines.kubernetes.planned import PlannedRecords, SecretShapes
from reconciler.engines.kubernetes.reading.connections import ask_cluster
from reconciler.engines.kubernetes.rendering.inputs import ClusterFeatures
from reconciler.engines.kubernetes.rendering.names import GVC, WORKLOAD, format_label_value
from reconciler.engines.kubernetes.trials import MADE_ANEW, NO_ANSWER, ObjectVerdict
from reconciler.engines.kubernetes.volumes.commands import check_growth, read_requested_size
from reconciler.engines.plugin import ForeseenRefusal, ForeseenReplacement, PlanTrial, UnaskedLocation
from reconciler.errors import EngineError
from reconciler.model.key import Key, Kind
from reconciler.model.kinds.volumeset import read_capacity
from reconciler.planning.plan import Action, Step
from reconciler.reasons import Reason
from reconciler.records.store import Records
from reconciler.settings import Settings
from reconciler.times import format_iso_time

PATIENCE = 5.0
"""Seconds for all questions about a plan: a cluster that takes longer is not waited for."""
MOST_ASKED = 50
"""Workloads and volume sets of a location about which its cluster is asked."""
_NOT_LISTED = (POD, JOB, VOLUME_SNAPSHOT)
_NO_VALUE = (Reason.SECRET_UNAVAILABLE, Reason.SECRET_UNUSABLE)
_AT_ONCE = 8

T = TypeVar("T")


def try_steps(settings: Settings, records: Records, steps: Iterable[Step], engine: str) -> PlanTrial:
    """What the clusters of ``engine`` refuse of ``steps``, and what they make anew (see SupportsTrial).

    All of them are asked at once, by dry runs. The values of secrets are not read.
    """
    steps = list(steps)
    by_location: dict[str, list[Step]] = {}
    for step in steps:
        bound = settings.locations.get(step.location)
        if bound is not None and bound.engine == engine and _can_be_tried(step):
            by_location.setdefault(step.location, []).append(step)
    if not by_location:
        return PlanTrial()
    ends = time.monotonic() + PATIENCE
    trials = [
        _LocationTrial(settings, PlannedRecords(records, location, steps), records, here)
        for location, here in sorted(by_location.items())
    ]
    with ThreadPoolExecutor(len(trials), "trial") as pool:
        list(pool.map(lambda trial: trial.read(ends), trials))
        # The records are of one thread.
        for trial in trials:
            trial.render()
        list(pool.map(lambda trial: trial.ask(ends), trials))
    return PlanTrial(
        tuple(sorted(refusal for trial in trials for refusal in trial.list_refusals())),
        tuple(sorted(replacement for trial in trials for replacement in trial.list_replacements())),
        tuple(UnaskedLocation(trial.location, trial.unasked) for trial in trials if trial.unasked),
    )


def _can_be_tried(step: Step) -> bool:
    """Whether the cluster has an opinion: what is replaced as a whole is deleted before."""
    if step.key.kind is Kind.WORKLOAD:
        return step.action in (Action.CREATE, Action.UPDATE)
    return step.key.kind is Kind.VOLUMESET and step.action is Action.UPDATE


class _Seen(NamedTuple):
    """What a cluster has of the resources of a plan."""

    features: ClusterFeatures
    objects: list[tuple[ObjectKind, bytes]]


class _Change(NamedTuple):
    """The fields of an object of ``key`` that a step changes, and that cannot change."""

    key: Key
    target: ObjectId
    paths: Sequence[str]


class _LocationTrial:
    """The steps of a plan at ``location``. ``unasked`` is why its cluster was not asked about all, "" if it was."""

    def __init__(self, settings: Settings, planned: PlannedRecords, records: Records, steps: Sequence[Step]) -> None:
        self.location = location = planned.location
        # A change may cost something that is there, and a new resource does not.
        self._steps = sorted(steps, key=lambda step: step.action is Action.CREATE)[:MOST_ASKED]
        self._left_out = len(steps) - len(self._steps)
        self._cluster = settings.locations[location].cluster
        self._owner = make_owner(settings.org, location, self._cluster)
        self._past = LocationRecords(records, location)
        self._desired, self._mirror, _ = make_renderer(settings, planned, SecretShapes(planned).read)
        self._former = make_renderer(settings, self._past, SecretShapes(self._past).read).desired
        self._objects: dict[Key, list[KubeObject]] = {}
        self._adopting: set[Key] = set()
        self._refusals: list[ForeseenRefusal] = []
        self._changes: dict[Key, dict[ObjectId, list[str]]] = {}
        self._verdicts: dict[Key, list[ObjectVerdict]] = {}
        self.unasked = _explain_outage(records, location)

    def read(self, ends: float) -> None:
        """Read what the cluster has of the resources, until the time ``ends``."""
        seen = self._question(self._read, ends)
        if seen is None:
            return
        for desired in (self._desired, self._former):
            desired.set_features(seen.features)
        for kind, content in seen.objects:
            if self._owner.has(mirror_object(kind, content)):
                self._mirror.put(kind, content)

    def _question(self, work: Callable[[KubeApi], Awaitable[T]], ends: float) -> T | None:
        """What the cluster answers until ``ends``; None if it does not, or did not before."""
        if self.unasked:
            return None
        try:
            return ask_cluster(self._cluster, work, max(ends - time.monotonic(), 0.1))
        except EngineError as error:
            self.unasked = f"{error.reason}: {error}"
            return None

    async def _read(self, api: KubeApi) -> _Seen:
        features, served = await read_features(api)
        kinds = [kind for kind in (*ALWAYS_SERVED, *served) if kind not in _NOT_LISTED]
        pages = await asyncio.gather(*(api.list(kind, self._select(kind)) for kind in kinds))
        items = [(kind, item) for kind, page in zip(kinds, pages, strict=True) for item in page.items]
        return _Seen(features, items)

    def _select(self, kind: ObjectKind) -> str:
        """The label selector of what the steps change, and not of all that is at the location."""
        names = {step.key.name for step in self._steps if step.key.kind is Kind.WORKLOAD}
        of_gvc = kind in (NAMESPACE, CLAIM) or not names
        label, values = (GVC, {step.key.gvc for step in self._steps}) if of_gvc else (WORKLOAD, names)
        return f"{self._owner.select(kind)},{label} in ({','.join(sorted(map(format_label_value, values)))})"

    def render(self) -> None:
        """Make the objects of each step, and find the fields that cannot change."""
        for gvc in sorted({step.key.gvc for step in self._steps}):
            self._render_namespace(gvc)
        for step in self._steps:
            if step.key.kind is Kind.WORKLOAD:
                self._render_workload(step)

    def _render_namespace(self, name: str) -> None:
        key = Key(Kind.GVC, "", name)
        namespace = self._mirror.get(ObjectId(NAMESPACE, "", self._owner.namespace_of(name)))
        if namespace is not None and namespace.ending:
            self._refuse(key, explain_ending(namespace))
        elif namespace is None:
            with suppress(EngineError):
                self._objects[key] = self._desired.render_namespace(name)[:1]
            if self._desired.adopts_namespace(name):
                self._adopting.add(key)

    def _render_workload(self, step: Step) -> None:
        try:
            applied = AppliedResource(step.key, step.body, step.digest, step.version)
            rendered = self._desired.render_workload(applied)
        except EngineError as error:
            if error.reason not in _NO_VALUE:
                self._refuse(step.key, str(error))
            return
        self._objects[step.key] = rendered.objects
        if rendered.adopt:
            self._adopting.add(step.key)
        before = self._list_before(step)
        changes = {
            id_of(item): list_immutable_changes(before[id_of(item)], item)
            for item in rendered.objects
            if id_of(item) in before
        }
        self._changes[step.key] = {target: paths for target, paths in changes.items() if paths}

    def _list_before(self, step: Step) -> Mapping[ObjectId, KubeObject]:
        """The objects of a workload before the step: those that are there, or else those that were applied."""
        if not self.unasked:
            return {item.id: item.decode() for item in self._mirror.of_key(step.key)}
        past = self._past.here(step.key)
        if past is None or past.engine != step.engine:
            return {}
        applied = AppliedResource(past.key, past.body, past.digest, past.version)
        with suppress(EngineError):
            return {id_of(item): item for item in self._former.render_workload(applied).objects}
        return {}

    def ask(self, ends: float) -> None:
        """Let the cluster try the objects, until the time ``ends``."""
        self._question(self._ask, ends)
        if self._left_out and not self.unasked:
            self.unasked = f"{self._left_out} resources are left out: a plan asks about {MOST_ASKED} at most"

    async def _ask(self, api: KubeApi) -> None:
        applier = ObjectApplier(api, self._mirror, self._owner, self._cluster.force_conflicts)
        slots = asyncio.Semaphore(_AT_ONCE)

        async def try_one(key: Key) -> None:
            async with slots:
                self._verdicts[key] = await self._try_objects(applier, api, key)

        spaces = {key.name for key in self._objects if key.kind is Kind.GVC}
        # Nothing can be tried in a namespace that is not there.
        keys = {*self._objects, *(step.key for step in self._steps if step.key.kind is Kind.VOLUMESET)}
        await asyncio.gather(*(try_one(key) for key in sorted(keys) if key.gvc not in spaces))

    async def _try_objects(self, applier: ObjectApplier, api: KubeApi, key: Key) -> list[ObjectVerdict]:
        if key.kind is Kind.VOLUMESET:
            return await self._try_growth(api, key)
        return await applier.try_objects(key, self._objects[key], adopt=key in self._adopting)

    async def _try_growth(self, api: KubeApi, key: Key) -> list[ObjectVerdict]:
        capacity = next(read_capacity(step.body) for step in self._steps if step.key == key)
        claims = [(item.id, item.decode()) for item in self._mirror.of_key(key) if item.id.kind is CLAIM]
        growing = [(target, claim) for target, claim in claims if read_requested_size(claim) < capacity]
        return [await _judge_growth(api, target, claim) for target, claim in growing]

    def list_refusals(self) -> list[ForeseenRefusal]:
        """What the cluster refuses, and of what it did not judge, what it is known to refuse."""
        for key, verdicts in self._verdicts.items():
            for verdict in verdicts:
                if verdict.error is not None:
                    self._refuse(key, str(verdict.error))
        for change in self._list_unjudged():
            if change.target.kind not in MADE_ANEW:
                message = f"{change.target}: {' and '.join(change.paths)} cannot change; give the workload another name"
                self._refuse(change.key, message)
        return sorted(set(self._refusals))

    def list_replacements(self) -> list[ForeseenReplacement]:
        """What is made anew."""
        anew = [
            _Change(key, verdict.target, self._changes.get(key, {}).get(verdict.target, ()))
            for key, verdicts in self._verdicts.items()
            for verdict in verdicts
            if verdict.anew
        ]
        anew += [change for change in self._list_unjudged() if change.target.kind in MADE_ANEW]
        return sorted(ForeseenReplacement(self.location, change.key, _explain_replacement(change)) for change in anew)

    def _list_unjudged(self) -> Iterator[_Change]:
        """The changes of immutable fields about which the cluster has said nothing."""
        for key, changes in self._changes.items():
            if key not in self._verdicts:
                yield from (_Change(key, target, paths) for target, paths in changes.items())

    def _refuse(self, key: Key, message: str) -> None:
        self._refusals.append(ForeseenRefusal(self.location, key, message))


async def _judge_growth(api: KubeApi, target: ObjectId, claim: KubeObject) -> ObjectVerdict:
    try:
        await check_growth(api, target, claim)
    except EngineError as error:
        if error.reason in NO_ANSWER:
            raise
        return ObjectVerdict(target, error=error)
    return ObjectVerdict(target)


def _explain_replacement(change: _Change) -> str:
    fields = " and ".join(change.paths) or "a field"
    stays = "its pods and volumes stay" if change.target.kind is STATEFUL_SET else "it has no address for a moment"
    return f"{change.target} is deleted and made again, since {fields} of it cannot change; {stays}"


def _explain_outage(records: Records, location: str) -> str:
    """Why the daemon does not reach a location since its last try; "" if it does."""
    about = (Reason.LOCATION_UNREACHABLE, Reason.LOCATION_REACHABLE)
    events = [event for event in records.events.list(f"location/{location}", limit=10) if event.reason in about]
    if not events or events[-1].reason != Reason.LOCATION_UNREACHABLE:
        return ""
    return f"the daemon does not reach it since {format_iso_time(events[-1].at)}: {events[-1].message}"
