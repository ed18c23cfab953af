"""The engine of a location on a Kubernetes cluster: it applies objects, and reports what it observes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

from reconciler.bugs import contain_bugs
from reconciler.engines.command_types import parse_command
from reconciler.engines.context import EngineContext
from reconciler.engines.domain_status import DomainReport
from reconciler.engines.kubernetes.applying import ObjectApplier, end_workload, explain_ending, explain_left
from reconciler.engines.kubernetes.client.api import KubeApi
from reconciler.engines.kubernetes.client.objects import (
    ALWAYS_SERVED,
    CRON_JOB,
    DEPLOYMENT,
    JOB,
    NAMESPACE,
    POD,
    STATEFUL_SET,
    ObjectId,
    ObjectKind,
)
from reconciler.engines.kubernetes.commands import ClusterCommands
from reconciler.engines.kubernetes.desired import AppliedResource, DesiredObjects
from reconciler.engines.kubernetes.domains import report_domains
from reconciler.engines.kubernetes.features import read_features
from reconciler.engines.kubernetes.mirror import ClusterMirror, MirroredObject
from reconciler.engines.kubernetes.observer import ClusterObserver
from reconciler.engines.kubernetes.ownership import make_owner
from reconciler.engines.kubernetes.parts import ClusterParts
from reconciler.engines.kubernetes.signals import GATHER_SECONDS, EngineSignals, RefreshRequests
from reconciler.engines.kubernetes.usage_sampler import ClusterUsageSampler, find_history
from reconciler.engines.kubernetes.volumes.commands import VolumeCommands
from reconciler.engines.kubernetes.volumes.moves import VolumeMoves
from reconciler.engines.kubernetes.volumes.releases import ReleaseSnapshots
from reconciler.engines.kubernetes.volumes.restore_undos import RestoreUndos
from reconciler.engines.kubernetes.volumes.watcher import VolumeWatcher
from reconciler.engines.protocol import EngineEvent, Observation, Outcome, Result
from reconciler.engines.volume_claims import VolumeClaims
from reconciler.engines.workload.reachability import Reachability
from reconciler.engines.workload_commands import RunCronWorkload, StopWorkloadReplica
from reconciler.errors import EngineError, RecordsError
from reconciler.model.key import Key, Kind
from reconciler.model.kinds.volumeset import Specification as VolumeSetSpecification
from reconciler.model.kinds.volumeset import read_specification as read_volumeset
from reconciler.model.kinds.workload import Specification, mounted_volumesets, read_specification
from reconciler.model.record import Health, Record
from reconciler.planning.plan import Action, Step
from reconciler.reasons import Reason
from reconciler.settings import ClusterSettings
from reconciler.tasks import cancel_and_wait

ENGINE = "kubernetes"
NEEDED = (DEPLOYMENT, STATEFUL_SET, CRON_JOB, JOB, POD)
"""Kinds without which nothing can be concluded about workloads."""
DISCOVERY_SECONDS = 60.0
"""Seconds between two questions for the kinds that the cluster serves."""
FIRST_RETRY, LAST_RETRY = 1.0, 60.0
"""Seconds after which changed inputs that could not be applied are tried again: at first, and at most."""
TIMES_SECONDS = 5.0
"""Seconds between two looks for a status that changes by itself."""


class KubernetesEngine:
    """Runs the workloads of one location on the cluster of its settings.

    ``perform`` applies objects and returns; ``observe`` shows the progress. A deletion is performed repeatedly: its
    step waits with the reason Terminating until the objects are gone.
    """

    name = ENGINE
    parallel = 32
    immediate = False
    can_drift = True

    def __init__(self, context: EngineContext) -> None:
        self._context = context
        bound = context.settings.locations.get(context.location)
        cluster = bound.cluster if bound is not None else ClusterSettings()
        owner = make_owner(context.settings.org, context.location, cluster)
        self._signals = EngineSignals(context.clock)
        self._api = KubeApi(cluster, context.clock)
        self._mirror = ClusterMirror(self._api, owner, context.clock, self.report_change)
        self._applier = ObjectApplier(self._api, self._mirror, owner, cluster.force_conflicts)
        self._desired = DesiredObjects(context, cluster, owner, self._mirror)
        self._claims = VolumeClaims(context.records, context.settings.org)
        parts = ClusterParts(context, self._api, self._mirror, self._desired, self._applier)
        self._volumes = VolumeCommands(parts, self._apply_record)
        history = find_history(context.settings.state, context.location)
        self._usage = ClusterUsageSampler(self._api, self._mirror, owner.select(POD), context.clock, history)
        self._undos = RestoreUndos(parts, self._volumes, self.report)
        self._watcher = VolumeWatcher(parts, self._volumes, self._undos, self, self._lock_volumes)
        self._moves = VolumeMoves(parts, self._lock)
        self._releases = ReleaseSnapshots(parts, self._volumes.snapshots)
        self._observer = ClusterObserver(parts, self._watcher, self._signals.add_event)
        self._commands = ClusterCommands(context, self._api, self._mirror, self._desired)
        self._reachability = Reachability(
            context.clock, Reason.CLUSTER_UNREACHABLE, self._ask_cluster, self.report_change
        )
        self._opening = asyncio.Lock()
        self._open_requested = False
        self._works = False
        self._to_sweep: set[Key] = set()
        self._unknown: dict[ObjectKind, str] = {}
        self._failures: dict[Key, str] = {}
        self._locks: dict[Key, asyncio.Lock] = {}
        self._followed: set[ObjectKind] = set()
        self._refreshes = RefreshRequests()
        self._working: list[asyncio.Task[None]] = []

    # Lifecycle

    async def open(self) -> None:
        """List and watch what is there. Raises EngineError; after a failure nothing is open."""
        self._open_requested = True
        await self._reachability.check()  # who asks the cluster has the lock meanwhile
        async with self._opening:
            if not self._works:
                async with self._reachability.watch(opens=True):
                    await self._take_over()

    async def _ask_cluster(self) -> None:
        async with self._opening:
            await (self._api.read_version() if self._works else self._take_over())

    async def _take_over(self) -> None:
        try:
            await self._list_and_watch()
        except BaseException:
            await self._mirror.close(self._describe())
            await self._api.close()
            raise
        self._works = True

    async def _list_and_watch(self) -> None:
        self._desired.read_domains()
        served = await self._discover()
        self._followed = {*ALWAYS_SERVED, *served}
        await self._mirror.follow([*ALWAYS_SERVED, *served])
        volumes = self._watcher.run(self._list_volume_sets)
        tags = (self._desired.tags.run(self.report), self._roll_moved_tags())
        used = self._usage.run(lambda: [record.key for record in self._list_workloads()])
        working = (self._refresh_workloads(), self._watch_times(), self._watch_kinds(), volumes, used, *tags)
        self._to_sweep.update(key for key in self._mirror.list_keys() if key.kind is Kind.GVC)
        self._working = [asyncio.create_task(work) for work in working]
        # Their tags are followed once they were looked at, also after a restart.
        if any(read_specification(record.body).support_dynamic_tags for record in self._list_workloads()):
            self._refreshes.add()
        if self._context.decommissioning:
            self._working.append(asyncio.create_task(self._end_everything()))
        self.report_change()

    async def _discover(self) -> list[ObjectKind]:
        """The additional kinds that the cluster serves; notes its features."""
        features, served = await read_features(self._api)
        self._desired.set_features(features)
        return served

    async def _watch_kinds(self) -> None:
        """Notice kinds that the cluster serves since, or no longer, until cancelled."""
        while True:
            await self._context.clock.sleep(DISCOVERY_SECONDS)
            with contain_bugs("discovery"), suppress(EngineError):
                before = self._desired.features
                served = await self._discover()
                added = [kind for kind in served if kind not in self._followed]
                await self._mirror.follow(added)
                self._followed.update(added)
                if self._desired.features != before:
                    self.refresh()

    async def close(self) -> None:
        """Stop watching; what runs goes on."""
        await self._reachability.close()
        working, self._working = self._working, []
        await cancel_and_wait(working, self._describe())
        await self._mirror.close(self._describe())
        await self._api.close()
        self._works = False

    def _describe(self) -> str:
        return f"the kubernetes engine of {self._context.location}"

    def begin_schedules(self) -> None:
        """Take and delete snapshots by the schedules from now on."""
        self._watcher.begin_schedules()

    def refresh(self) -> None:
        """Apply workloads again whose secrets, variables, domains or restarts changed. Raises RecordsError."""
        self._desired.read_domains()
        self._refreshes.add()

    async def wait_refreshed(self) -> None:
        """Return once each workload was tried after the last ``refresh``, or after some seconds."""
        if self._works:
            await self._refreshes.wait_tried()

    def news(self) -> list[EngineEvent]:
        """The events since the last call."""
        return self._signals.take_events()

    # Observation

    def report_change(self, key: Key | None = None) -> None:
        """Report that an observation of ``key``, or (None) of anything here, may differ from the last one."""
        self._signals.report_change(key)

    def changes(self) -> AsyncIterator[frozenset[Key]]:
        """Yields the resources that have changed; empty: anything here has."""
        return self._signals.changes()

    async def observe(self) -> list[Observation]:
        """Observe all resources of the location. Raises EngineError."""
        if not self._works and not self._open_requested:
            return await self._observe_once()
        await self._require_known()
        return await self._observe_all()

    async def _observe_once(self) -> list[Observation]:
        """As ``observe``, without watches: for a command, which ends soon."""
        async with self._opening:
            try:
                self._desired.read_domains()
                served = await self._discover()
                await self._mirror.list_once([*ALWAYS_SERVED, *served])
                await self._require_known()
                return await self._observe_all()
            finally:
                await self._mirror.close(self._describe())
                await self._api.close()

    async def _observe_all(self) -> list[Observation]:
        keys = {record.key for record in self._records_here()}
        there = (key for key in self._mirror.list_keys() if key.kind in (Kind.WORKLOAD, Kind.VOLUMESET))
        return await self._observer.observe(sorted(keys.union(there, self._observer.list_followed())))

    async def observe_some(self, keys: Collection[Key]) -> list[Observation]:
        """Observe ``keys``, and the volume sets of the workloads among them. Raises EngineError."""
        await self._require_known()
        return await self._observer.observe(sorted(keys))

    async def _require_known(self) -> None:
        if not self._works and self._open_requested:
            await self.open()
        error = self._mirror.explain_unknown(NEEDED)
        if error is not None:
            # What one client cannot reach, another one may: the commands of people ask without an open engine.
            raise error

    async def _watch_times(self) -> None:
        """Report workloads whose status changes although the cluster does not, until cancelled."""
        while True:
            due, soon = self._observer.take_due()
            for key in due:
                self.report_change(key)
            self._note_unknown()
            await self._sweep()
            with contain_bugs("executions"), suppress(EngineError, RecordsError):
                await self._commands.end_invalid_executions()
            wait = TIMES_SECONDS if soon is None else soon - self._context.clock.now()
            await self._context.clock.sleep(min(max(wait, GATHER_SECONDS), TIMES_SECONDS))

    def _note_unknown(self) -> None:
        """Let all be observed again when the kinds change that the cluster does not show."""
        unknown = {kind: str(error) for kind, error in self._mirror.list_unknown().items()}
        if unknown != self._unknown:
            self._unknown = unknown
            self.report_change()

    async def _sweep(self) -> None:
        """Delete Secrets of former versions, and those of GVCs that are gone, once no pod has them."""
        for key in list(self._to_sweep):
            # A Secret that is being applied has no pod yet.
            async with self._lock(key):
                with contain_bugs(f"sweep of {key}"), suppress(EngineError, RecordsError):
                    is_gone = key.kind is Kind.GVC and not self._desired.has_namespace(key.name)
                    if not await self._applier.sweep(key, is_gone=is_gone):
                        self._to_sweep.discard(key)

    def _lock(self, key: Key) -> asyncio.Lock:
        """Only one change of a resource is under way at a time: a step, a refresh, a sweep or a command."""
        return self._locks.setdefault(key, asyncio.Lock())

    @asynccontextmanager
    async def _lock_volumes(self, key: Key) -> AsyncIterator[None]:
        """Let nothing change a volume set, nor its workload, which would make a claim that is being replaced."""
        async with AsyncExitStack() as stack:
            for locked in dict.fromkeys((self._volumes.find_user(key) or key, key)):
                await stack.enter_async_context(self._lock(locked))
            yield

    def list_mirrored(self, kind: ObjectKind) -> Iterator[MirroredObject]:
        """The objects of a kind that belong to the location, as the watch shows them."""
        return self._mirror.of_kind(kind)

    def domains(self) -> Mapping[Key, DomainReport] | None:
        """What is served of the domains that lead to workloads here; None until the cluster is known."""
        if not self._works:
            return None
        if not self._desired.has_domains or self._context.decommissioning:
            # This is asked with each observation, also of a single workload.
            return {}
        keys = [key for key in self._context.records.list_keys(self.name) if key.kind is Kind.WORKLOAD]
        return report_domains(self._context.location, keys, self._desired, self._mirror)

    # Steps

    async def perform(self, step: Step) -> Outcome:
        """Apply the objects of ``step``, or delete them. Raises EngineError."""
        async with self._reachability.watch():
            await self._require_known()
            await self.open()
            if step.key.kind is Kind.WORKLOAD:
                async with self._lock(step.key):
                    return await self._perform_workload(step)
            if step.key.kind is Kind.VOLUMESET:
                async with self._lock_volumes(step.key):
                    return await self._perform_volume_set(step)
        return Outcome(step.id, Result.APPLIED)

    async def _perform_workload(self, step: Step) -> Outcome:
        key = step.key
        past = self._claims.record(key)
        spec = read_specification(step.body) if step.action is not Action.DELETE else None
        also = tuple(self._claims.affected_volumesets(step, spec, past))
        running = self._desired.find_running(key)
        replaced = step.action is Action.REPLACE and not self._observer.is_applied(running, step.digest)
        if spec is None or replaced:
            left = await self._applier.delete(key)
            if left:
                return self._terminating(step, left)
            self._desired.forget(key)
            self._usage.forget(key)
        if spec is None:
            self._to_sweep.add(Key(Kind.GVC, "", key.gvc))
            return Outcome(step.id, Result.APPLIED, also=also)
        if running is None:
            self._observer.expect_news(key)
        await self._bring_volumes(key, spec)
        applied = AppliedResource(key, step.body, step.digest, step.version)
        await self._releases.take_before(applied)
        version = await self._apply(applied)
        # Nothing has to run for a schedule to be as it is wanted.
        health = Health.HEALTHY if spec.type == "cron" else Health.LOADING
        seen = Observation(key, step.location, health, b"", step.digest, version)
        return Outcome(step.id, Result.APPLIED, seen=seen, also=also)

    async def _bring_volumes(self, key: Key, spec: Specification) -> None:
        """Let a workload have its volumes before it runs: else the cluster makes empty ones. Raises EngineError."""
        names = mounted_volumesets(spec)
        for volumeset in (Key(Kind.VOLUMESET, key.gvc, name) for name in names):
            async with self._lock(volumeset):
                await self._undos.finish_all(volumeset)
        await self._moves.bring_volumes(key, names)

    async def _apply(self, applied: AppliedResource) -> int:
        """Make the cluster have ``applied``; returns its version there. Raises EngineError."""
        await self._apply_namespace(applied.key.gvc)
        rendered = self._desired.render_workload(applied)
        if await self._applier.apply(applied.key, rendered.objects, adopt=rendered.adopt):
            self.report_change(applied.key)
            self._to_sweep.add(applied.key)
        await self._applier.prune(applied.key, rendered.objects)
        self._desired.tags.follow(rendered.template, rendered.answers)
        return rendered.template.desired.version

    async def _apply_record(self, record: Record) -> int:
        """Make the cluster have a recorded workload. Raises EngineError."""
        return await self._apply(AppliedResource(record.key, record.body, record.digest, record.version))

    async def _apply_namespace(self, name: str) -> None:
        """Make the cluster have the objects of a GVC as a whole. Raises EngineError, also while they are deleted."""
        key = Key(Kind.GVC, "", name)
        async with self._lock(key):
            namespace = self._mirror.get(ObjectId(NAMESPACE, "", self._desired.namespace_of(name)))
            if namespace is not None and namespace.ending:
                raise EngineError(explain_ending(namespace), reason=Reason.TERMINATING)
            await self._applier.apply(
                key, self._desired.render_namespace(name), adopt=self._desired.adopts_namespace(name)
            )
        self._to_sweep.add(key)

    def _terminating(self, step: Step, left: Sequence[MirroredObject]) -> Outcome:
        message = f"replicas are ending at {step.location}: {explain_left(left)}"
        seen = self._observer.observe_ending(step.key)
        return Outcome(step.id, Result.WAITING, Reason.TERMINATING, message, seen=seen)

    async def _perform_volume_set(self, step: Step) -> Outcome:
        past = self._claims.record(step.key)
        spec = read_volumeset(past.body) if past is not None else VolumeSetSpecification()
        final, waits = spec.snapshots.create_final_snapshot, ""
        await self._undos.finish_all(step.key)
        if step.action is Action.DELETE:
            waits = await self._volumes.delete_claims(step.key, final=final)
        elif step.action is Action.REPLACE and past is not None and past.digest != step.digest:
            waits = await self._volumes.replace_claims(step.key, read_volumeset(step.body), final=final)
        if waits:
            return Outcome(step.id, Result.WAITING, Reason.TERMINATING, f"{waits} at {step.location}")
        if step.action is Action.DELETE:
            return Outcome(step.id, Result.APPLIED)
        await self._apply_namespace(step.key.gvc)
        await self._volumes.grow_claims(step.key, step.body)
        state = self._claims.state(step, self._claims.record(step.key))
        seen = Observation(step.key, step.location, Health.HEALTHY, state, step.digest, step.version)
        return Outcome(step.id, Result.APPLIED, seen=seen)

    # Commands

    async def command(self, key: Key, name: str, spec: dict[str, Any], command_id: str = "") -> dict[str, Any]:
        """Start an execution on demand, stop a replica or change a volume; returns it. Raises EngineError."""
        ask = parse_command(key, name, spec, self._context.location)
        await self.open()
        if isinstance(ask, RunCronWorkload):
            async with self._lock(key):
                return await self._commands.run(key, ask, command_id)
        if isinstance(ask, StopWorkloadReplica):
            return await self._commands.stop_replica(key, ask.replica)
        async with self._lock_volumes(key):
            await self._undos.finish_all(key, bring_back=True)
            return await self._volumes.change_volume(key, ask, command_id)

    # Changed inputs

    async def _refresh_workloads(self) -> None:
        """Apply what is recorded again, each time that an input of it may have changed; until cancelled."""
        while True:
            await self._refreshes.take()
            keys = [record.key for record in self._records_here() if record.key.kind is Kind.WORKLOAD]
            wait = FIRST_RETRY
            while not self._refreshes.is_due:
                keys = [key for key in keys if not await self._refresh_workload(key)]
                self._refreshes.note_tried()
                if not keys:
                    break
                await self._context.clock.sleep(wait)
                wait = min(2 * wait, LAST_RETRY)

    async def _roll_moved_tags(self) -> None:
        """Apply workloads again whose images have moved, until cancelled; one that fails is reported again."""
        while True:
            for key in sorted(await self._desired.tags.wait_for_moved()):
                with suppress(RecordsError):
                    await self._refresh_workload(key)

    async def _refresh_workload(self, key: Key) -> bool:
        """Apply what is recorded; whether no other try is needed."""
        async with self._lock(key):
            record = self._claims.record(key)
            running = self._desired.find_running(key)
            if record is None or not self._observer.is_applied(running, record.digest):
                # It is missing, being deleted, or changed by a step that is not recorded yet; the next run decides.
                return True
            try:
                with contain_bugs(f"refresh of {key}"):
                    await self._bring_volumes(key, read_specification(record.body))
                    await self._apply_record(record)
            except RecordsError:
                raise
            except EngineError as error:
                self._report_failure(key, f"{error.reason}: {error}")
                return not error.retry
            self._failures.pop(key, None)
            return True

    def _report_failure(self, key: Key, message: str) -> None:
        """Report that something that no step asked for failed, once for each message."""
        if self._failures.get(key) != message:
            self._failures[key] = message
            self.report(key, Reason.WORKLOAD_ERROR, message)

    async def _end_everything(self) -> None:
        """Delete what runs at a location that has another engine now; volumes stay."""
        for key in self._mirror.list_keys():
            if key.kind is Kind.WORKLOAD:
                await end_workload(key, self._applier, self._context.clock, self.report)

    def report(self, key: Key, reason: Reason, message: str) -> None:
        """Report an event that no step caused."""
        self._signals.add_event(key, reason, message)
        self.report_change(key)

    def _list_workloads(self) -> list[Record]:
        return [record for record in self._records_here() if record.key.kind is Kind.WORKLOAD]

    def _list_volume_sets(self) -> list[Key]:
        return sorted(record.key for record in self._records_here() if record.key.kind is Kind.VOLUMESET)

    def _records_here(self) -> list[Record]:
        if self._context.decommissioning:
            return []
        records = self._context.records.all_here(self.name)
        return [record for record in records if record.key.kind in (Kind.WORKLOAD, Kind.VOLUMESET)]
