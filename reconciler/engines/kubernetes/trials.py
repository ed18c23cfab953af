"""Finds out what the API server makes of objects before any of them is changed: by dry runs, or from what it did."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, defaultdict
from collections.abc import Sequence
from fnmatch import fnmatchcase
from hashlib import blake2b
from typing import Any, NamedTuple

import msgspec

from reconciler.engines.kubernetes.client.api import KubeApi
from reconciler.engines.kubernetes.client.errors import Cause, ClusterError
from reconciler.engines.kubernetes.client.objects import (
    AUTOSCALER,
    DISRUPTION_BUDGET,
    NAMESPACE,
    NETWORK_POLICY,
    SCALERS,
    SECRET,
    SERVICE,
    SERVICE_ACCOUNT,
    STATEFUL_SET,
    KubeObject,
    ObjectId,
    ObjectKind,
    id_of,
)
from reconciler.engines.kubernetes.mirror import ClusterMirror, hash_fields
from reconciler.engines.kubernetes.ownership import Owner, explain_foreign, migrate_managers
from reconciler.engines.kubernetes.rendering.names import FIELDS, SHORT_LENGTH, format_label
from reconciler.errors import EngineError
from reconciler.model.key import Key
from reconciler.reasons import Reason

MADE_ANEW = (STATEFUL_SET, SERVICE)
"""Kinds with fields that cannot change, and that can be replaced while what they lead to goes on."""
NO_ANSWER = (Reason.CLUSTER_UNREACHABLE, Reason.CREDENTIALS_REFUSED)
"""Reasons for which nothing is known about an object: the server was not asked."""
INERT = (SECRET, SERVICE_ACCOUNT, NETWORK_POLICY, SERVICE, DISRUPTION_BUDGET)
"""Kinds whose new objects do nothing before what runs a workload is there."""
STRANGERS_SECONDS = 1.0
"""Seconds for which a namespace is not asked again for objects that are not ours."""
STRANGERS_REST = 20
"""The same, as a multiple of the time that the last answer took: a large namespace, or a busy server."""
MOST_SHAPES = 10_000
"""Shapes of objects whose fields are remembered."""

HANDOVER = "reconciler-handover"
"""The manager of a number of replicas on its way to an autoscaler."""

_REPLICAS = ".spec.replicas"
_SCALERS = (
    '"kube-controller-manager" with subresource "scale"',
    '"keda" with subresource "scale"',
    f'"{HANDOVER}"',
)
"""How the server names in a conflict who sets the number of replicas for an autoscaler, and until it does."""
_INVALID = 422
_CLIENT_SIDE = "kubectl.kubernetes.io/last-applied-configuration"
_NEVER_KEYS = frozenset({"image", "value"})
"""Names of values that tell no item of a list from another one."""

_encode = msgspec.json.Encoder(order="deterministic").encode


class Trial(NamedTuple):
    """An object to apply; ``force``: fields of others are taken over; ``anew``: it is deleted first.

    ``created``: there is no object of its name yet. ``guess``: no dry run has shown that the server takes it. What a
    StatefulSet runs goes on while it is replaced, and belongs to the new one of its name.
    """

    item: KubeObject
    target: ObjectId
    force: bool = False
    anew: bool = False
    created: bool = False
    guess: bool = False


class ObjectVerdict(NamedTuple):
    """What the server says of an object before it is applied; ``anew``: it is deleted first.

    ``error``: why it is refused.
    """

    target: ObjectId
    anew: bool = False
    error: EngineError | None = None


class ObjectTrials:
    """Asks the server what it would make of objects, which changes nothing. ``forced`` are as `ObjectApplier` has them.

    An object names a hash of the fields that are ours. Only the server knows it, and it depends on the shape of the
    object: so it is remembered for each shape that the server has seen.
    """

    def __init__(self, api: KubeApi, mirror: ClusterMirror, owner: Owner, forced: Sequence[str]) -> None:
        self._api = api
        self._mirror = mirror
        self._owner = owner
        self._forced = forced
        self._fields: OrderedDict[bytes, str] = OrderedDict()
        self._strangers: dict[tuple[ObjectKind, str], tuple[float, frozenset[str]]] = {}
        self._asking: defaultdict[tuple[ObjectKind, str], asyncio.Lock] = defaultdict(asyncio.Lock)

    def guess(self, key: Key, item: KubeObject) -> Trial | None:
        """``item`` to be applied without a dry run; None where one is needed.

        It is for an object of ours that is the only one to change: if the server refuses it, nothing has changed, too.
        """
        target = id_of(item)
        mirrored, fields = self._mirror.get(target), self._fields.get(_hash_shape(item), "")
        if mirrored is None or mirrored.key != key or mirrored.ending or not fields:
            return None
        return Trial(with_annotation(item, FIELDS, fields), target, guess=True)

    async def guess_new(self, item: KubeObject) -> Trial | None:
        """A new object to be applied without a dry run; None where one is needed.

        It is for one of many that can be taken back, or that comes last: the server has accepted its shape before, and
        nobody else has an object of its name.
        """
        target = id_of(item)
        fields = self._fields.get(_hash_shape(item), "")
        ours = self._mirror.get(ObjectId(NAMESPACE, "", target.namespace)) is not None
        if not fields or not ours or self._mirror.get(target) is not None:
            return None
        if not self._mirror.is_complete(target.kind) or not await self._is_free(target):
            return None
        return Trial(with_annotation(item, FIELDS, fields), target, created=True, guess=True)

    async def _is_free(self, target: ObjectId) -> bool:
        """Whether nobody else has an object of a name; the objects of ours are in the mirror."""
        collection = target.kind, target.namespace
        now = asyncio.get_running_loop().time
        asked = now()
        async with self._asking[collection]:
            until, names = self._strangers.get(collection, (float("-inf"), frozenset()))
            if until < asked:
                at = now()
                try:
                    selectors = self._owner.list_stranger_selectors()
                    found = [await self._api.list_names(*collection, selector) for selector in selectors]
                    names = frozenset().union(*found)
                except EngineError:
                    return False
                until = at + max(STRANGERS_SECONDS, STRANGERS_REST * (now() - at))
                self._strangers[collection] = until, names
            return target.name not in names

    def remember(self, item: KubeObject, fields: str) -> None:
        """Note the hash of the fields that the server has made ours of ``item``."""
        shape = _hash_shape(item)
        self._fields[shape] = fields
        self._fields.move_to_end(shape)
        while len(self._fields) > MOST_SHAPES:
            self._fields.popitem(last=False)

    async def judge_object(self, key: Key, item: KubeObject, *, adopt: bool) -> ObjectVerdict:
        """What the server says of ``item``. Raises EngineError if it does not answer."""
        target = id_of(item)
        try:
            trial = await self.try_object(key, item, adopt=adopt, only_asks=True)
        except EngineError as error:
            if error.reason in NO_ANSWER:
                raise
            return ObjectVerdict(target, error=error)
        return ObjectVerdict(target, anew=trial.anew)

    async def try_object(self, key: Key, item: KubeObject, *, adopt: bool, only_asks: bool = False) -> Trial:
        """Try ``item``. An object of its name that is not of ``key`` is refused, or taken over with ``adopt``.

        With ``only_asks`` it is not taken over yet. Raises EngineError, with the words of the server if it refuses the
        object.
        """
        target = id_of(item)
        mirrored = self._mirror.get(target)
        if mirrored is not None and mirrored.key == key:
            return await self.dry_run(key, item, target)
        trial, failure = None, None
        try:
            trial = await self.dry_run(key, item, target)
        except ClusterError as error:
            failure = error
        # A watch with our labels shows none of others: that there was an object is known from the answer alone.
        if trial is not None and trial.created:
            return trial
        stranger = await self._find_stranger(key, target)
        if stranger is None and failure is not None:
            raise failure
        if stranger is None and trial is not None:
            return trial
        if stranger is not None:
            if not adopt or not self._owner.may_adopt(stranger):
                raise explain_foreign(stranger, self._owner)
            if only_asks:
                await self._api.apply(item, target, force=True, dry_run=True)
                return Trial(item, target, force=True)
            await self._take_over(stranger)
        return await self.dry_run(key, item, target)

    async def _find_stranger(self, key: Key, target: ObjectId) -> KubeObject | None:
        """The metadata of the object ``target`` if it exists and is not one of ``key``."""
        there = await self._api.get_metadata(target)
        if there is None:
            return None
        if self._owner.is_of(key, there["metadata"]):
            return None
        return {**there, "apiVersion": target.kind.api_version, "kind": target.kind.kind}

    async def _take_over(self, stranger: KubeObject) -> None:
        """Make the fields that kubectl or another tool set on an object ours, so that removed ones really go."""
        target, metadata = id_of(stranger), stranger["metadata"]
        entries = metadata.get("managedFields") or []
        migrated = migrate_managers(entries)
        operations: list[object] = [
            # The server answers 409 to another version than this, and a later try may succeed.
            {"op": "replace", "path": "/metadata/resourceVersion", "value": metadata["resourceVersion"]},
        ]
        if migrated != entries:
            operations.append({"op": "replace", "path": "/metadata/managedFields", "value": migrated})
        if _CLIENT_SIDE in (metadata.get("annotations") or {}):
            pointer = _CLIENT_SIDE.replace("/", "~1")
            operations.append({"op": "remove", "path": f"/metadata/annotations/{pointer}"})
        if len(operations) > 1:
            await self._api.patch(target, operations)

    async def dry_run(self, key: Key, item: KubeObject, target: ObjectId) -> Trial:
        """Ask the server what it would make of ``item``, which names the fields that will be ours."""
        force = False
        try:
            answer = await self._api.apply(item, target, dry_run=True)
        except ClusterError as error:
            if error.code == _INVALID and await self._can_be_anew(item, target):
                return Trial(item, target, anew=True)
            force = await self._may_force(key, target, error)
            if not force:
                raise
            answer = await self._api.apply(item, target, force=True, dry_run=True)
        fields = hash_fields(answer.managers)
        self.remember(item, fields)
        return Trial(with_annotation(item, FIELDS, fields), target, force, created=answer.created)

    async def _can_be_anew(self, item: KubeObject, target: ObjectId) -> bool:
        """Whether the server refuses ``item`` only because of the object of its name.

        What it would refuse under any name must not cost the object that is there.
        """
        if target.kind not in MADE_ANEW or self._mirror.get(target) is None:
            return False
        name = format_label(f"{target.name}.trial", SHORT_LENGTH)
        twin = {**item, "metadata": {**item["metadata"], "name": name}}
        try:
            await self._api.apply(twin, target._replace(name=name), dry_run=True)
        except ClusterError as error:
            # The object that is there uses up the quota, and goes first.
            return error.reason is Reason.QUOTA_EXCEEDED
        return True

    async def _may_force(self, key: Key, target: ObjectId, error: ClusterError) -> bool:
        conflicts = [cause for cause in error.causes if cause.reason == "FieldManagerConflict"]
        others = [cause for cause in conflicts if not self._is_forced(cause.field)]
        if not conflicts or any(cause.field != _REPLICAS for cause in others):
            return False
        return not others or self._has_autoscaler(key) or await self._is_scaler_gone(target, others)

    def _is_forced(self, field: str) -> bool:
        return any(field == pattern or fnmatchcase(field, _escape_pattern(pattern)) for pattern in self._forced)

    def _has_autoscaler(self, key: Key) -> bool:
        """Whether the number of replicas is set by an autoscaler of ours, which goes once it is fixed again."""
        return any(item.id.kind in SCALERS for item in self._mirror.of_key(key))

    async def _is_scaler_gone(self, target: ObjectId, conflicts: Sequence[Cause]) -> bool:
        """Whether an autoscaler owns the number of replicas that is there no more: then nobody else wants another.

        KEDA scales by one of its own, which it deletes some time after ours.
        """
        if not all(any(name in cause.message for name in _SCALERS) for cause in conflicts):
            return False
        page = await self._api.list(AUTOSCALER, namespace=target.namespace)
        scalers: list[KubeObject] = [msgspec.json.decode(item) for item in page.items]
        scaled = [scaler["spec"]["scaleTargetRef"] for scaler in scalers]
        return all((each["kind"], each["name"]) != (target.kind.kind, target.name) for each in scaled)


def with_annotation(item: KubeObject, name: str, value: str) -> KubeObject:
    """``item`` with one more annotation."""
    metadata = item["metadata"]
    annotations = dict(sorted({**(metadata.get("annotations") or {}), name: value}.items()))
    return {**item, "metadata": {**metadata, "annotations": annotations}}


def _escape_pattern(pattern: str) -> str:
    """A pattern of fields in which only ``*`` is special: paths contain brackets."""
    return pattern.replace("[", "[[]")


def _hash_shape(item: KubeObject) -> bytes:
    """What decides which fields are ours: all names, and the values by which items of lists are told apart."""
    kind = item["apiVersion"], item["kind"]
    return blake2b(_encode([kind, _outline_value(item)]), digest_size=16).digest()


def _outline_value(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _outline_value(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_outline_entry(part) for part in value]
    return 0


def _outline_entry(value: Any) -> Any:
    if not isinstance(value, dict):
        return _outline_value(value) if isinstance(value, list) else value
    return {
        name: _outline_value(part) if isinstance(part, dict | list) or name in _NEVER_KEYS else part
        for name, part in value.items()
    }
