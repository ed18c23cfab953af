"""What a cluster has of a location, as a list and a watch of each kind show it."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache, partial
from hashlib import blake2b
from typing import Protocol

import msgspec

from reconciler.bugs import internal_error
from reconciler.clock import Clock
from reconciler.engines.kubernetes.client.api import KubeApi, WatchEvent
from reconciler.engines.kubernetes.client.errors import ClusterError, is_absent
from reconciler.engines.kubernetes.client.objects import (
    CONFIG_MAP,
    DISRUPTION_BUDGET,
    NETWORK_POLICY,
    SECRET,
    SERVICE,
    SERVICE_ACCOUNT,
    KubeObject,
    ManagedFields,
    ObjectId,
    ObjectKind,
)
from reconciler.engines.kubernetes.rendering.names import KEY, TOOL
from reconciler.errors import EngineError
from reconciler.model.key import Key
from reconciler.reasons import Reason
from reconciler.tasks import cancel_and_wait

FIRST_RETRY, LAST_RETRY = 0.5, 30.0
"""Seconds between two tries of a watch that fails: the first, and the longest."""
QUIET_SECONDS = 1.0
"""Seconds for which a watch stays open after which it works again."""
MOMENT_SECONDS = 30.0
"""Seconds for which a watch may fail without a word about it."""
STALE_SECONDS = 120.0
"""Seconds without a working watch after which nothing is concluded from what it showed."""

MOST_SETS = 2000
"""Sets of fields whose hashes are remembered, of some kilobytes each."""

_SHARED = (Reason.CLUSTER_UNREACHABLE, Reason.CREDENTIALS_REFUSED)

_MARKED = frozenset({CONFIG_MAP, DISRUPTION_BUDGET, NETWORK_POLICY, SECRET, SERVICE, SERVICE_ACCOUNT})
"""Kinds whose content no observation shows: controllers count in it how many pods are ready."""

_REPLICAS = b'"f:replicas"'

_encode = msgspec.json.Encoder(order="deterministic").encode
_decode_managers = msgspec.json.Decoder(list[ManagedFields] | None).decode


class _Metadata(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    deletion_timestamp: str = ""
    annotations: dict[str, str] | None = None
    labels: dict[str, str] | None = None
    managed_fields: msgspec.Raw = msgspec.Raw(b"")


class _Item(msgspec.Struct, frozen=True):
    metadata: _Metadata


_decode_item = msgspec.json.Decoder(_Item).decode


class MirroredObject(msgspec.Struct, frozen=True):
    """An object as the cluster has it; ``content`` is its JSON without the managers of fields.

    ``fields`` is a hash of the fields that this program applied and that no other has changed since, "" if there are
    none. ``key`` is the resource that it belongs to, None if it names none. ``managers`` have set fields;
    ``owns_replicas``: this program has set the number of its replicas.
    """

    id: ObjectId
    uid: str
    version: str
    key: Key | None
    annotations: dict[str, str]
    labels: dict[str, str]
    fields: str
    ending: bool
    content: bytes
    managers: tuple[str, ...] = ()
    owns_replicas: bool = False

    def decode(self) -> KubeObject:
        """The whole object, with its kind, which the items of a list lack."""
        kind = self.id.kind
        value: KubeObject = msgspec.json.decode(self.content)
        return {"apiVersion": kind.api_version, "kind": kind.kind, **value}


def hash_fields(managers: Iterable[ManagedFields] | None) -> str:
    """A hash of the fields that this program applied; "" if it applied none.

    A field that another program changes leaves this set, so that the hash shows any change of what was applied, and
    none of defaults, autoscalers and injected parts.
    """
    return next((_hash_set(bytes(entry.fields)) for entry in managers or () if _is_applied(entry)), "")


@lru_cache(MOST_SETS)
def _hash_set(fields: bytes) -> str:
    """A hash of a set of fields: objects that are rendered alike have the same set."""
    return blake2b(_encode(msgspec.json.decode(fields)), digest_size=12).hexdigest()


def mirror_object(kind: ObjectKind, content: bytes) -> MirroredObject:
    """An object of the API. Raises msgspec.MsgspecError for anything else."""
    return _mirror_object(kind, content, _decode_item(content).metadata)


def _mirror_object(kind: ObjectKind, content: bytes, metadata: _Metadata) -> MirroredObject:
    annotations, raw = metadata.annotations or {}, bytes(metadata.managed_fields)
    managers = (_decode_managers(raw) if raw else None) or ()
    return MirroredObject(
        ObjectId(kind, metadata.namespace, metadata.name),
        metadata.uid,
        metadata.resource_version,
        _parse_key(annotations.get(KEY, "")),
        annotations,
        metadata.labels or {},
        hash_fields(managers),
        bool(metadata.deletion_timestamp),
        _cut_managers(content, raw) if raw else content,
        tuple(entry.manager for entry in managers),
        any(_REPLICAS in bytes(entry.fields) for entry in managers if _is_applied(entry)),
    )


def _cut_managers(content: bytes, raw: bytes) -> bytes:
    """``content`` without the managers of fields, which are ``raw`` there: they are as long as all of the rest."""
    entry = b'"managedFields":' + raw
    before, separator, after = content.partition(entry)
    if separator and after[:1] == b",":
        return before + after[1:]
    if separator and before[-1:] == b",":
        return before[:-1] + after
    whole: KubeObject = msgspec.json.decode(content)
    whole["metadata"].pop("managedFields", None)
    return _encode(whole)


def _is_applied(entry: ManagedFields) -> bool:
    return entry.manager == TOOL and entry.operation == "Apply" and not entry.subresource


def _is_marked_alike(item: MirroredObject, former: MirroredObject) -> bool:
    """Whether an object has the marks and the fields of ours that it had, and ends as little."""
    return (item.uid, item.key, item.annotations, item.labels, item.fields, item.ending) == (
        former.uid,
        former.key,
        former.annotations,
        former.labels,
        former.fields,
        former.ending,
    )


def _parse_key(text: str) -> Key | None:
    try:
        return Key.parse(text) if text else None
    except ValueError:
        return None


class MirrorScope(Protocol):
    """Which objects of a cluster are mirrored."""

    def select(self, kind: ObjectKind) -> str:
        """The label selector of a kind."""

    def has(self, item: MirroredObject) -> bool:
        """Whether an object that the selector takes belongs to the location."""


class ClusterMirror:
    """The objects of ``scope``, of the kinds that ``follow`` names.

    ``changed`` gets the resource of each change, None if all may have changed. A kind that cannot be listed is unknown:
    nothing is concluded from what is missing of it.
    """

    def __init__(self, api: KubeApi, scope: MirrorScope, clock: Clock, changed: Callable[[Key | None], None]) -> None:
        self._api = api
        self._scope = scope
        self._clock = clock
        self._changed = changed
        self._objects: dict[ObjectKind, dict[ObjectId, MirroredObject]] = {}
        self._by_key: defaultdict[Key, dict[ObjectId, None]] = defaultdict(dict)
        self._revision = 0
        self._revisions: dict[Key, int] = {}
        self._listed: set[ObjectKind] = set()
        self._failing: dict[ObjectKind, tuple[float, EngineError]] = {}
        self._tasks: list[asyncio.Task[None]] = []

    async def follow(self, kinds: Iterable[ObjectKind]) -> None:
        """List ``kinds``, and watch them from then on. Raises ClusterError if the cluster does not answer.

        A kind that the daemon may not list is unknown, and is tried again.
        """
        kinds = list(kinds)
        versions = await self.list_once(kinds)
        self._tasks += [
            asyncio.create_task(self._follow(kind, version)) for kind, version in zip(kinds, versions, strict=True)
        ]

    async def list_once(self, kinds: Iterable[ObjectKind]) -> list[str]:
        """List ``kinds`` once, without watches; returns the versions of the lists. Raises as ``follow``."""
        return await asyncio.gather(*(self._list_first(kind) for kind in kinds))

    async def close(self, owner: str) -> None:
        """Stop watching."""
        tasks, self._tasks = self._tasks, []
        await cancel_and_wait(tasks, owner)
        self._objects.clear()
        self._by_key.clear()
        self._listed.clear()
        self._failing.clear()

    def is_complete(self, kind: ObjectKind) -> bool:
        """Whether all objects of ``kind`` are known, so that one that is not there does not exist."""
        return kind in self._listed and not self._is_stale(kind)

    def explain_unknown(self, kinds: Iterable[ObjectKind]) -> EngineError | None:
        """Why the objects of ``kinds`` are not known; None if they are."""
        for kind in kinds:
            if not self.is_complete(kind):
                _, error = self._failing.get(kind, (0.0, None))
                return error or EngineError(f"{kind} are not listed yet", reason=Reason.CLUSTER_UNREACHABLE)
        return None

    def failures(self) -> dict[ObjectKind, EngineError]:
        """The kinds that cannot be watched now, with the reasons."""
        return {kind: error for kind, (_, error) in sorted(self._failing.items())}

    def list_unknown(self) -> dict[ObjectKind, EngineError]:
        """The kinds of which something may be missing here, or too old, for a reason that others do not share.

        A watch that breaks for a moment is no such reason, nor is a cluster that does not answer at all.
        """
        now = self._clock.monotonic()
        return {
            kind: error
            for kind, (since, error) in sorted(self._failing.items())
            if error.reason not in _SHARED and (kind not in self._listed or now - since > MOMENT_SECONDS)
        }

    def get(self, target: ObjectId) -> MirroredObject | None:
        """An object; None if it is not there, or not known."""
        return self._objects.get(target.kind, {}).get(target)

    def of_key(self, key: Key) -> list[MirroredObject]:
        """All objects that belong to the resource ``key``."""
        return [self._objects[target.kind][target] for target in self._by_key.get(key, ())]

    def of_kind(self, kind: ObjectKind) -> Iterator[MirroredObject]:
        """All objects of a kind."""
        yield from list(self._objects.get(kind, {}).values())

    def revision_of(self, key: Key) -> int:
        """A number that grows with each change of the objects of ``key`` that an observation may show."""
        return self._revisions.get(key, 0)

    def list_keys(self) -> list[Key]:
        """The resources that have an object here, sorted."""
        return sorted(key for key, targets in self._by_key.items() if targets)

    def put(self, kind: ObjectKind, content: bytes) -> MirroredObject:
        """Take the answer to a request of our own, which the watch shows a moment later; returns what it has."""
        item = mirror_object(kind, content)
        former = self.get(item.id)
        if former is None or _is_newer(item.version, former.version):
            self._store(item)
        return item

    def drop(self, target: ObjectId) -> None:
        """Forget an object that a request of our own has deleted, which the watch shows a moment later."""
        self._remove(target)

    async def _list_first(self, kind: ObjectKind) -> str:
        try:
            return await self._list(kind)
        except ClusterError as error:
            if error.code in (403, 404):
                self._failing[kind] = (self._clock.monotonic(), error)
                return ""
            raise

    def _forget(self, kind: ObjectKind) -> None:
        """The cluster does not serve ``kind`` any more: it has none of its objects, and nothing is concluded."""
        self._listed.discard(kind)
        for target in list(self._objects.get(kind, ())):
            self._remove(target)

    async def _list(self, kind: ObjectKind) -> str:
        page = await self._api.list(kind, self._scope.select(kind))
        items = [item for content in page.items if self._scope.has(item := mirror_object(kind, content))]
        new = {item.id: item for item in items}
        before = self._objects.setdefault(kind, {})
        # What vanished while nothing was watched is shown by no event: it is missing from the new list.
        for target in before.keys() - new.keys():
            self._remove(target)
        for item in items:
            former = before.get(item.id)
            if former is None or former.version != item.version:
                self._store(item)
        self._listed.add(kind)
        self._failing.pop(kind, None)
        return page.version

    async def _follow(self, kind: ObjectKind, version: str) -> None:
        wait = FIRST_RETRY
        while True:
            try:
                version = version or await self._list(kind)
                accepted = partial(self._await_quiet, kind)
                async for event in self._api.watch(kind, self._scope.select(kind), version, accepted):
                    version = self._take(kind, event) or version
                    wait = FIRST_RETRY
                self._failing.pop(kind, None)
            except EngineError as error:
                forgotten = isinstance(error, ClusterError) and error.code == 410 and version != ""
                if is_absent(error) and not version:
                    self._forget(kind)
                if forgotten or is_absent(error) or _is_too_new(error):
                    version = ""
                if forgotten:
                    continue
                self._note_failure(kind, error)
            except Exception as error:  # noqa: BLE001 - a bug with one kind must not end the watches of the others
                self._note_failure(kind, EngineError(str(internal_error(error, f"watch of {kind}"))))
                version = ""
            else:
                continue
            await self._clock.sleep(wait * (1 + random.random() / 4))
            wait = min(2 * wait, LAST_RETRY)

    def _await_quiet(self, kind: ObjectKind) -> None:
        """A watch that failed before works if it stays open for a moment; its first change may be far away."""
        failure = self._failing.get(kind)
        if failure is not None:
            asyncio.get_running_loop().call_later(QUIET_SECONDS, self._end_failure, kind, failure)

    def _end_failure(self, kind: ObjectKind, failure: tuple[float, EngineError]) -> None:
        if self._failing.get(kind) is failure:
            del self._failing[kind]
            self._changed(None)

    def _take(self, kind: ObjectKind, event: WatchEvent) -> str:
        if event.type == "BOOKMARK":
            self._failing.pop(kind, None)
            return msgspec.json.decode(event.object, type=_Bookmark).metadata.version
        self._failing.pop(kind, None)
        content = bytes(event.object)
        metadata = _decode_item(content).metadata
        former = self.get(ObjectId(kind, metadata.namespace, metadata.name))
        if event.type == "DELETED":
            # One of the same name may have been made since, which the answer to our own request has shown.
            if former is not None and former.uid == metadata.uid:
                self._remove(former.id)
        elif former is None or _is_newer(metadata.resource_version, former.version):
            item = _mirror_object(kind, content, metadata)
            if self._scope.has(item):
                self._store(item)
        return metadata.resource_version

    def _note_failure(self, kind: ObjectKind, error: EngineError) -> None:
        since, _ = self._failing.get(kind, (self._clock.monotonic(), error))
        first = kind not in self._failing
        self._failing[kind] = (since, error)
        if first:
            self._changed(None)

    def _is_stale(self, kind: ObjectKind) -> bool:
        failing = self._failing.get(kind)
        return failing is not None and self._clock.monotonic() - failing[0] > STALE_SECONDS

    def _store(self, item: MirroredObject) -> None:
        former = self.get(item.id)
        if former is not None and former.key is not None and former.key != item.key:
            self._by_key[former.key].pop(item.id, None)
            self._note_change(former.key)
        self._objects.setdefault(item.id.kind, {})[item.id] = item
        if item.key is not None:
            self._by_key[item.key][item.id] = None
            if former is None or item.id.kind not in _MARKED or not _is_marked_alike(item, former):
                self._note_change(item.key)

    def _remove(self, target: ObjectId) -> None:
        item = self._objects.get(target.kind, {}).pop(target, None)
        if item is not None and item.key is not None:
            self._by_key[item.key].pop(target, None)
            if not self._by_key[item.key]:
                del self._by_key[item.key]
            self._note_change(item.key)

    def _note_change(self, key: Key) -> None:
        self._revision += 1
        self._revisions[key] = self._revision
        self._changed(key)


class _BookmarkMetadata(msgspec.Struct, frozen=True, rename={"version": "resourceVersion"}):
    version: str = ""


class _Bookmark(msgspec.Struct, frozen=True):
    metadata: _BookmarkMetadata


def _is_too_new(error: EngineError) -> bool:
    """Whether the server does not know a version yet: its storage was restored from a backup."""
    return isinstance(error, ClusterError) and "Too large resource version" in str(error)


def _is_newer(version: str, former: str) -> bool:
    """Whether a version is newer. They are numbers on every API server; without numbers, another one counts."""
    if version.isdecimal() and former.isdecimal():
        return int(version) > int(former)
    return version != former
