"""Applies the objects of a resource: all of them are tried before any is changed, and what is no more is deleted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b

import msgspec

from reconciler.bugs import internal_error
from reconciler.clock import Clock
from reconciler.engines.kubernetes.client.api import KubeApi
from reconciler.engines.kubernetes.client.errors import ClusterError
from reconciler.engines.kubernetes.client.objects import (
    ALWAYS_SERVED,
    CLAIM,
    CRON_JOB,
    DEPLOYMENT,
    JOB,
    KNATIVE_SERVICE,
    NAMESPACE,
    POD,
    SCALERS,
    SECRET,
    STATEFUL_SET,
    KubeObject,
    ObjectId,
    id_of,
)
from reconciler.engines.kubernetes.mirror import ClusterMirror, MirroredObject
from reconciler.engines.kubernetes.ownership import MADE_BY_CLUSTER, Owner
from reconciler.engines.kubernetes.rendering.names import (
    DIGEST,
    FIELDS,
    OBJECTS,
    RENDERED,
    SALT_SECRET,
    SOURCE,
    VERSION,
)
from reconciler.engines.kubernetes.trials import HANDOVER, INERT, ObjectTrials, ObjectVerdict, Trial, with_annotation
from reconciler.errors import EngineError
from reconciler.model.key import Key, Kind
from reconciler.reasons import Reason

RUNS = (DEPLOYMENT, STATEFUL_SET, CRON_JOB, KNATIVE_SERVICE)
"""Kinds of the object that runs a workload."""

_BEFORE_RUNS = 0
_RUNS = 1
_AFTER_RUNS = 2
_LATE = frozenset(
    {"HorizontalPodAutoscaler", "PodDisruptionBudget", "Ingress", "HTTPRoute", "HTTPScaledObject", "DomainMapping"}
)

_CONFLICT, _INVALID = 409, 422
_REFUSED = (400, 403, 409, 422)
MANY = 4
"""Resources that are applied at once from which new objects are not tried one by one."""
_NAMESPACE_WAITS = ("NamespaceFinalizersRemaining", "NamespaceDeletionContentFailure", "NamespaceContentRemaining")
_MOST_NAMED = 3
"""Objects that a message names at most."""
_ROOM_SECONDS = 30.0
_PAUSE_SECONDS = 0.1

_encode = msgspec.json.Encoder(order="deterministic").encode


class ObjectApplier:
    """Makes the cluster have the objects of a resource, by server-side apply.

    ``forced`` are patterns of fields that it takes over from others.
    """

    def __init__(self, api: KubeApi, mirror: ClusterMirror, owner: Owner, forced: Sequence[str]) -> None:
        self._api = api
        self._mirror = mirror
        self._owner = owner
        self._trials = ObjectTrials(api, mirror, owner, forced)
        self._at_once = 0
        self._refused: set[Key] = set()

    async def apply(self, key: Key, objects: Sequence[KubeObject], *, adopt: bool = False) -> bool:
        """Apply ``objects``, which are all of the resource ``key``; whether anything was changed.

        Raises EngineError, and nothing is changed if the server refuses one of them. With ``adopt``, an object that
        others made becomes ours.
        """
        self._at_once += 1
        try:
            changed = await self._apply_due(key, objects, adopt=adopt)
        except ClusterError as error:
            if error.code in _REFUSED:
                self._refused.add(key)
            raise
        finally:
            self._at_once -= 1
        self._refused.discard(key)
        return changed

    async def _apply_due(self, key: Key, objects: Sequence[KubeObject], *, adopt: bool) -> bool:
        marked = [_mark_rendered(item) for item in with_inventory(objects)]
        due = [item for item in marked if not self._is_current(item)]
        namespaces = [item for item in due if id_of(item).kind is NAMESPACE]
        # The server tries nothing in a namespace that does not exist yet.
        for batch in (namespaces, [item for item in due if item not in namespaces]):
            if batch:
                await self._apply_batch(key, batch, adopt=adopt)
        return bool(due)

    async def try_objects(self, key: Key, objects: Sequence[KubeObject], *, adopt: bool = False) -> list[ObjectVerdict]:
        """What the server says of ``objects``, which are all of ``key``; nothing is changed.

        Secrets are left out: they always fit, and a plan has no values for them. Raises EngineError if it does not
        answer.
        """
        marked = [_mark_rendered(item) for item in with_inventory(objects)]
        due = [item for item in marked if id_of(item).kind is not SECRET and not self._is_current(item)]
        return await asyncio.gather(*(self._trials.judge_object(key, item, adopt=adopt) for item in due))

    async def _apply_batch(self, key: Key, due: Sequence[KubeObject], *, adopt: bool) -> None:
        if len(due) == 1 and await self._apply_untried(key, due[0]):
            return
        untried = self._at_once >= MANY and not adopt and key not in self._refused and not self._is_running(key)
        tried = await asyncio.gather(*(self._try(key, item, adopt=adopt, untried=untried) for item in due))
        stages = [[trial for trial in tried if _stage_of(trial) == stage] for stage in (_BEFORE_RUNS, _RUNS)]
        made = await self._apply_stage(key, stages[0], [])
        await asyncio.gather(*(self._delete(item) for item in self._list_leaving_scalers(key, due)))
        await self._apply_stage(key, stages[1], made)
        await asyncio.gather(*(self._apply(key, trial) for trial in tried if _stage_of(trial) == _AFTER_RUNS))

    def _list_leaving_scalers(self, key: Key, due: Sequence[KubeObject]) -> list[MirroredObject]:
        """The autoscalers of ``key``, if its number of replicas is fixed: they would change it once more."""
        if not any(id_of(item).kind in (DEPLOYMENT, STATEFUL_SET) and "replicas" in item["spec"] for item in due):
            return []
        return [item for item in self._mirror.of_key(key) if item.id.kind in SCALERS and self._may_prune(key, item)]

    async def _try(self, key: Key, item: KubeObject, *, adopt: bool, untried: bool) -> Trial:
        """Try ``item`` by a dry run. If it may stay ``untried``, none is needed for what can be taken back.

        Nor for what runs the workload: once all else is tried or made, its apply is the trial.
        """
        if untried and id_of(item).kind in (*INERT, *RUNS):
            trial = await self._trials.guess_new(item)
            if trial is not None:
                return trial
        return await self._trials.try_object(key, item, adopt=adopt)

    def _is_running(self, key: Key) -> bool:
        return any(item.id.kind in (*RUNS, POD) for item in self._mirror.of_key(key))

    async def _apply_stage(self, key: Key, trials: Sequence[Trial], before: Sequence[ObjectId]) -> list[ObjectId]:
        """Apply ``trials`` at once; returns what was made of those that no dry run has shown.

        If the server refuses one of them, these are taken back, and what was made ``before``.
        """
        results = await asyncio.gather(*(self._apply(key, trial) for trial in trials), return_exceptions=True)
        new = [trial.target for trial, result in zip(trials, results, strict=True) if trial.guess and result is True]
        errors = [result for result in results if isinstance(result, BaseException)]
        if not errors:
            return new
        if any(isinstance(error, ClusterError) and error.code in _REFUSED for error in errors):
            await asyncio.gather(*(self._take_back(target) for target in (*new, *before)))
        raise errors[0]

    async def _take_back(self, target: ObjectId) -> None:
        mirrored = self._mirror.get(target)
        if mirrored is not None:
            await self._delete(mirrored)

    async def _apply_untried(self, key: Key, item: KubeObject) -> bool:
        """Apply the only object to change without a dry run, which would cost as much; whether that was possible."""
        trial = self._trials.guess(key, item)
        if trial is None or self._find_replicas(item, trial.target) is not None:
            return False
        if self._list_leaving_scalers(key, [item]):
            return False
        try:
            await self._apply(key, trial)
        except ClusterError as error:
            # A dry run shows whether the daemon may take fields over, or replace the object.
            if error.code not in (_CONFLICT, _INVALID):
                raise
            return False
        return True

    async def prune(self, key: Key, objects: Sequence[KubeObject]) -> bool:
        """Delete what belongs to ``key`` and is not among ``objects``; whether there was anything.

        Only what has our labels is deleted, and only of kinds that are completely known. A Secret that a pod of an
        older version uses stays.
        """
        stay = {id_of(item) for item in objects}
        gone = [item for item in self._mirror.of_key(key) if item.id not in stay and self._may_prune(key, item)]
        await asyncio.gather(*(self._delete(item) for item in gone))
        return bool(gone)

    async def sweep(self, key: Key, *, is_gone: bool = False) -> bool:
        """Delete Secrets of earlier versions of ``key`` that nothing uses any more; whether some are left.

        With ``is_gone``, none of its Secrets is of the present version.
        """
        items = self._mirror.of_key(key)
        listed = {name for item in items for name in item.annotations.get(OBJECTS, "").split(",") if name}
        former = [
            item
            for item in items
            if item.id.kind is SECRET
            and item.id.name != SALT_SECRET
            and (is_gone or f"{SECRET.kind}/{item.id.name}" not in listed)
        ]
        unused = [item for item in former if (listed or is_gone) and self._may_prune(key, item)]
        await asyncio.gather(*(self._delete(item) for item in unused))
        return len(unused) < len(former)

    async def delete(self, key: Key) -> list[MirroredObject]:
        """Delete all objects of ``key``, claims left out; returns what still ends.

        Raises EngineError while the objects of a kind are not known: some of them might stay for ever.
        """
        error = self._mirror.explain_unknown(kind for kind in ALWAYS_SERVED if kind is not CLAIM)
        if error is not None:
            raise error
        items = [item for item in self._mirror.of_key(key) if item.id.kind is not CLAIM]
        doomed = [item for item in items if item.id.kind is not POD and not item.ending and self._may_delete(item)]
        # What runs goes first: its pods must still find their Secrets and their account until they have ended.
        running = [item for item in doomed if item.id.kind in (*RUNS, JOB)]
        pods = [item for item in items if item.id.kind is POD]
        if not running and not pods:
            running = doomed
        await asyncio.gather(*(self._delete(item) for item in running))
        left = (item for item in self._mirror.of_key(key) if item.id.kind is not CLAIM)
        return sorted(left, key=lambda item: item.id)

    def find_changes(self, key: Key) -> list[str]:
        """What differs of the objects of ``key`` from what was applied, for people; none if nothing does."""
        items = {item.id: item for item in self._mirror.of_key(key)}
        changes = [
            f"{item.id} was changed"
            for item in items.values()
            if item.id.kind not in MADE_BY_CLUSTER and item.annotations.get(FIELDS, "") != item.fields
        ]
        names = {f"{target.kind.kind}/{target.name}" for target in items}
        listed = {name for item in items.values() for name in item.annotations.get(OBJECTS, "").split(",") if name}
        unknown = {kind.kind for kind in self._mirror.failures() if not self._mirror.is_complete(kind)}
        missing = (name for name in listed - names if name.partition("/")[0] not in unknown)
        changes += [f"{name} is missing" for name in missing]
        return sorted(changes)

    def _is_current(self, item: KubeObject) -> bool:
        mirrored = self._mirror.get(id_of(item))
        if mirrored is None or mirrored.ending:
            return False
        marks = mirrored.annotations
        return marks.get(RENDERED) == _get_annotations(item)[RENDERED] and marks.get(FIELDS, "") == mirrored.fields

    async def _hand_over_replicas(self, item: KubeObject, target: ObjectId) -> None:
        """Let another manager own the number of replicas before it leaves our fields.

        The server would reset it to 1 otherwise, before an autoscaler sets it.
        """
        replicas = self._find_replicas(item, target)
        if replicas is None:
            return
        part = {
            "apiVersion": item["apiVersion"],
            "kind": item["kind"],
            "metadata": {"name": target.name, "namespace": target.namespace},
            "spec": {"replicas": replicas},
        }
        await self._api.apply(part, target, owner=HANDOVER)

    def _find_replicas(self, item: KubeObject, target: ObjectId) -> int | None:
        """The number of replicas that would leave our fields with ``item``; None if none does."""
        mirrored = self._mirror.get(target)
        if mirrored is None or target.kind not in (DEPLOYMENT, STATEFUL_SET) or "replicas" in item["spec"]:
            return None
        if HANDOVER in mirrored.managers or not mirrored.owns_replicas:
            return None
        replicas: int | None = mirrored.decode()["spec"].get("replicas")
        return replicas

    async def _apply(self, key: Key, trial: Trial) -> bool:
        """Apply an object; whether there was none of its name."""
        await self._hand_over_replicas(trial.item, trial.target)
        if trial.anew:
            await self.make_room(trial.target)
            trial = await self._trials.dry_run(key, trial.item, trial.target)
        fields, created = await self._send(trial)
        if fields != _get_annotations(trial.item)[FIELDS]:
            self._trials.remember(trial.item, fields)
            await self._send(trial._replace(item=with_annotation(trial.item, FIELDS, fields)))
        return created

    async def _send(self, trial: Trial) -> tuple[str, bool]:
        """Apply an object; returns the hash of the fields that are ours then, and whether there was none."""
        # What is new and was not tried has the fields of another one that the server has accepted just now.
        validate = trial.guess and not trial.created
        answer = await self._api.apply(trial.item, trial.target, force=trial.force, validate=validate)
        return self._mirror.put(trial.target.kind, answer.content).fields, answer.created

    async def make_room(self, target: ObjectId) -> None:
        """Delete an object, and wait until its name is free."""
        await self._api.delete(target, orphan=target.kind is STATEFUL_SET)
        try:
            async with asyncio.timeout(_ROOM_SECONDS):
                while await self._api.get_metadata(target) is not None:
                    await asyncio.sleep(_PAUSE_SECONDS)
        except TimeoutError:
            message = f"{target} must be made anew, and does not end; look for its finalizers"
            raise EngineError(message, reason=Reason.TERMINATING) from None
        self._mirror.drop(target)

    def _may_prune(self, key: Key, item: MirroredObject) -> bool:
        kind = item.id.kind
        if kind in MADE_BY_CLUSTER or item.ending or not self._is_ours(item) or not self._mirror.is_complete(kind):
            return False
        return kind is not SECRET or not self._is_in_use(key, item.id)

    def _is_in_use(self, key: Key, secret: ObjectId) -> bool:
        """Whether a pod has the Secret, or may have it; names end with a digest, so that no other text contains one.

        All workloads of a GVC use its Secrets, and their next pods use what their templates name.
        """
        is_shared = key.kind is Kind.GVC
        users = (POD, JOB, *RUNS) if is_shared else (POD, JOB)
        failures = self._mirror.failures()
        if any(kind in failures or (kind in ALWAYS_SERVED and not self._mirror.is_complete(kind)) for kind in users):
            return True
        items = (
            (item for kind in users for item in self._mirror.of_kind(kind)) if is_shared else self._mirror.of_key(key)
        )
        quoted = f'"{secret.name}"'.encode()
        return any(
            quoted in item.content for item in items if item.id.kind in users and item.id.namespace == secret.namespace
        )

    def _may_delete(self, item: MirroredObject) -> bool:
        """Whether an object is ours; an execution has no instance, and nobody else has one in our namespace."""
        return self._is_ours(item) or (item.id.kind is JOB and self.owns_namespace(item.id.namespace))

    def owns_namespace(self, name: str) -> bool:
        """Whether a namespace is one of ours: what controllers made in it is of our workloads."""
        return self._mirror.get(ObjectId(NAMESPACE, "", name)) is not None

    def _is_ours(self, item: MirroredObject) -> bool:
        return self._owner.owns(item.labels)

    async def _delete(self, item: MirroredObject) -> None:
        await self._api.delete(item.id, uid=item.uid)


def with_inventory(objects: Sequence[KubeObject]) -> list[KubeObject]:
    """``objects`` with the names of all in the one that runs, or in the first.

    It alone names the digest and the version: a new commit changes no object besides those that differ.
    """
    names = ",".join(sorted(f"{item['kind']}/{item['metadata']['name']}" for item in objects))
    holder = next((item for item in objects if id_of(item).kind in RUNS), objects[0] if objects else None)
    return [with_annotation(item, OBJECTS, names) if item is holder else _without_version(item) for item in objects]


def _without_version(item: KubeObject) -> KubeObject:
    metadata = item["metadata"]
    annotations = metadata.get("annotations") or {}
    left = {name: value for name, value in annotations.items() if name not in (DIGEST, VERSION, SOURCE)}
    return {**item, "metadata": {**metadata, "annotations": left}}


def _get_annotations(item: KubeObject) -> Mapping[str, str]:
    annotations: Mapping[str, str] = item["metadata"].get("annotations") or {}
    return annotations


def _mark_rendered(item: KubeObject) -> KubeObject:
    digest = blake2b(_encode(item), digest_size=12).hexdigest()
    # The hash of the fields is known only after a trial, and its name must be among them.
    return with_annotation(with_annotation(item, RENDERED, digest), FIELDS, "")


def _stage_of(trial: Trial) -> int:
    if trial.target.kind in RUNS:
        return _RUNS
    # What is to be taken back, if what runs is refused, comes before it.
    return _AFTER_RUNS if trial.target.kind.kind in _LATE and not trial.guess else _BEFORE_RUNS


async def end_workload(
    key: Key, applier: ObjectApplier, clock: Clock, report: Callable[[Key, Reason, str], None]
) -> None:
    """Delete the objects of a workload, again each second until none is left; ``report`` gets what fails, once."""
    reported = ""
    while True:
        try:
            if not await applier.delete(key):
                return
        except EngineError as error:
            if reported != (reported := f"{error.reason}: {error}"):
                report(key, Reason.WORKLOAD_ERROR, reported)
        except Exception as error:  # noqa: BLE001 - a bug with one workload must not let the others run on
            report(key, Reason.WORKLOAD_ERROR, str(internal_error(error, f"end of {key}")))
            return
        await clock.sleep(1.0)


def explain_left(left: Sequence[MirroredObject]) -> str:
    """How many objects are left of what ends, and what the first ones wait for."""
    count = "1 object" if len(left) == 1 else f"{len(left)} objects"
    waits = [f"; {text}" for text in map(_explain_finalizers, left) if text][:_MOST_NAMED]
    return f"{count} left{''.join(waits)}"


def _explain_finalizers(item: MirroredObject) -> str:
    """What an object that ends waits for, for people; "" if it names nothing."""
    finalizers = ", ".join(item.decode()["metadata"].get("finalizers") or ())
    return f"{item.id} waits for {finalizers} (its finalizers)" if item.ending and finalizers else ""


def explain_ending(namespace: MirroredObject) -> str:
    """Why nothing can be made in a namespace that is being deleted, with the words of the cluster."""
    conditions = (namespace.decode().get("status") or {}).get("conditions") or ()
    words = [
        entry.get("message", "")
        for entry in conditions
        if entry.get("status") == "True" and entry.get("type") in _NAMESPACE_WAITS
    ]
    more = f": {'; '.join(filter(None, words))}" if any(words) else ""
    return f"the namespace {namespace.id.name} is being deleted{more}; it is made again once it is gone"
