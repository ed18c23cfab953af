"""The index of the next state of a source: its resources, their files, and their references."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

from reconciler.manifests.change_set import ChangeSet
from reconciler.manifests.desired_state import ResourceLocation
from reconciler.manifests.encrypted import UNNAMED_SECRET
from reconciler.model.key import Kind
from reconciler.model.platform import BUILT_IN_RESOURCES
from reconciler.model.record import Record
from reconciler.model.resource import Reference, Resource
from reconciler.pipeline.externals import ExternalResources
from reconciler.planning.policy import retention_reason
from reconciler.records.store import Records
from reconciler.records.tables.desired import DesiredEntry

MAX_PREFETCHED = 4096
"""The most keys read in one batch: their files take about 10 MB."""

MAX_SIMILAR = 1000
"""The most keys that a missing target is compared with."""


class Prefetch:
    """Reads rows of the records in batches: one by one, each costs four times as much.

    It returns the rows as first read; create a new instance after they change.
    """

    def __init__(self, records: Records) -> None:
        self._records = records
        self._entries: dict[str, DesiredEntry | None] = {}
        self._blobs: frozenset[str] = frozenset()
        self._packed: dict[str, bytes] | None = None
        self._bodies: dict[str, bytes] | None = None

    def fetch(self, keys: Iterable[str]) -> None:
        """Read the index entries of ``keys``, replacing the last batch.

        Their recorded bodies and their files are read when one is needed.
        """
        batch = list(keys)[:MAX_PREFETCHED]
        entries = self._records.desired.get_many(batch)
        self._entries = {key: entries.get(key) for key in batch}
        self._blobs = frozenset(entry.blob for entry in entries.values())
        self._packed = self._bodies = None

    def entry(self, key: str) -> DesiredEntry | None:
        """The index entry of ``key``; None if it is not desired."""
        return self._entries[key] if key in self._entries else self._records.desired.get(key)

    def recorded_body(self, entry: DesiredEntry) -> bytes | None:
        """The body of ``entry`` if it is applied as desired, else None."""
        applied = self._records.applied
        # An entry from outside the batch has no body in it.
        if self._entries.get(entry.key) is not entry:
            return applied.bodies({entry.key: entry.digest}).get(entry.key)
        if self._bodies is None:
            self._bodies = applied.bodies({key: entry.digest for key, entry in self._entries.items() if entry})
        return self._bodies.get(entry.key)

    def find_packed(self, blob: str) -> bytes | None:
        """The decoded file ``blob``, packed; None if it is not cached."""
        if blob not in self._blobs:
            return self._records.documents.get(blob)
        if self._packed is None:
            self._packed = self._records.documents.get_many(self._blobs)
        return self._packed.get(blob)


class RecordsIndex:
    """A change set laid over the records, for one source; implements ``DesiredIndex``. It opens no file.

    Create a new instance for each change set, and after the records changed.
    """

    def __init__(
        self, source: str, records: Records, externals: ExternalResources, changes: ChangeSet | None = None
    ) -> None:
        """Without ``changes`` the desired state is that of the last good revision."""
        self.source = source
        self.records = records
        self.externals = externals
        self.process_locations = externals.process_locations
        self.changes = ChangeSet() if changes is None else changes
        self.removed = frozenset(self.changes.list_removed())
        self.prefetched = Prefetch(records)
        self._new_members: defaultdict[str, list[str]] = defaultdict(list)
        self._new_users: dict[Kind, defaultdict[str, list[str]]] = {}
        self._users: dict[tuple[str, str], list[str]] = {}
        for key, resource in self.changes.added.items():
            self._new_members[resource.key.gvc].append(key)

    def entry(self, key: str) -> DesiredEntry | Resource | None:
        """The resource ``key`` if it changed, else its index entry; None if it is not desired."""
        return self.changes.added.get(key) or (None if key in self.removed else self.prefetched.entry(key))

    def prefetch(self, keys: Iterable[str]) -> None:
        """Read the rows of ``keys`` in one batch, before they are used."""
        if not self.is_first_load():
            self.prefetched.fetch({key for key in keys if key not in self.changes.added and key not in self.removed})

    def prefetch_users(self, targets: Iterable[str], kind: Kind) -> list[str]:
        """Read the users of ``kind`` of each of ``targets`` in one batch; returns the keys of unchanged users."""
        if self.is_first_load():
            return []
        unread = [target for target in targets if (target, kind) not in self._users]
        referrers = self.records.desired.referrers_by_target(unread, kind) if unread else {}
        unchanged = {target: self._select_unchanged(referrers.get(target, ())) for target in unread}
        for target, users in unchanged.items():
            self._users[target, kind] = sorted([*self._new_users_of(kind).get(target, ()), *users])
        return [user for users in unchanged.values() for user in users]

    def is_first_load(self) -> bool:
        """Whether the index of all sources is empty."""
        return self._is_first_load

    @cached_property
    def _is_first_load(self) -> bool:
        return self.records.desired.empty()

    def exists(self, target: str) -> bool:
        """Whether a link to ``target`` is satisfied (docs/platform/fields.md#what-a-link-may-lead-to)."""
        # What is removed has no other place, and links of other sources keep it.
        return (target in self.externals.claimed and target not in self.removed) or self._is_known(target)

    def list_external(self) -> frozenset[str]:
        """The keys, as text, of what exists elsewhere; of those that the repository lists, what nothing declares."""
        claimed = self.externals.claimed
        return self.externals.external | {key for key in claimed if not self._is_known(key)}

    def _is_known(self, target: str) -> bool:
        """Whether Git, the records or the settings have ``target``."""
        if any(
            target in targets
            for targets in (self.changes.added, self.changes.unresolved, self.externals.external, BUILT_IN_RESOURCES)
        ):
            return True
        # A secret whose name cannot be read may be the one that the link names.
        if target.startswith(f"{Kind.SECRET}/") and UNNAMED_SECRET in self.changes.unresolved:
            return True
        if target.startswith((f"{Kind.LOCATION}/", "/")) and self.externals.settings_unknown:
            return True
        if target.startswith(f"{Kind.LOCATION}/") and target.partition("/")[2] in self.externals.locations:
            return True
        if self._nothing_recorded:
            return False
        if target not in self.removed and self.prefetched.entry(target) is not None:
            return True
        # What stays at its location can still be used, although this source does not declare it.
        return any(map(self.is_retained, self.records.applied.get(target)))

    @cached_property
    def _nothing_recorded(self) -> bool:
        """Whether there is nothing to look up, which a first load would do for every link."""
        return self.is_first_load() and not self.records.applied.counts()

    def is_retained(self, record: Record) -> bool:
        """Whether this source never deletes ``record``: another one owns it, or it is protected."""
        return bool(record.source != self.source or self.externals.prune_disabled or retention_reason(record))

    def referrers(self, target: str, kind: str = "") -> list[str]:
        """Keys of unchanged resources (all, or those of ``kind``) that refer to ``target``."""
        return self._select_unchanged(self.records.desired.referrers(target, kind))

    def referrers_of_any(self, targets: Iterable[str]) -> list[str]:
        """Keys of unchanged resources that refer to any of ``targets``."""
        return self._select_unchanged(self.records.desired.referrers_of_any(targets))

    def select_referred(self, targets: Iterable[str]) -> set[str]:
        """Those of ``targets`` to which a resource refers in the last good revision."""
        return self.records.desired.select_referred(targets)

    def _select_unchanged(self, keys: Iterable[str]) -> list[str]:
        added, gone = self.changes.added, self.removed
        return [key for key in keys if key not in added and key not in gone]

    def users(self, key: str, kind: Kind) -> list[str]:
        """Keys of all resources of ``kind`` that refer to ``key``, in order."""
        if (key, kind) not in self._users:
            unchanged = () if self.is_first_load() else self.referrers(key, kind)
            self._users[key, kind] = sorted([*self._new_users_of(kind).get(key, ()), *unchanged])
        return self._users[key, kind]

    def _new_users_of(self, kind: Kind) -> Mapping[str, list[str]]:
        """The changed resources of ``kind`` by the keys that they refer to."""
        by_target = self._new_users.get(kind)
        if by_target is None:
            by_target = self._new_users[kind] = defaultdict(list)
            changed = ((key, resource) for key, resource in self.changes.added.items() if resource.key.kind is kind)
            for user, resource in changed:
                for target in {reference.target for reference in resource.references}:
                    by_target[target].append(user)
        return by_target

    def references(self, key: str) -> Sequence[Reference]:
        """References of ``key``."""
        added = self.changes.added.get(key)
        if added is not None:
            return added.references
        return () if key in self.removed else self.records.desired.references(key)

    def references_before(self, key: str) -> Sequence[Reference]:
        """References of ``key`` in the last good revision."""
        return self.records.desired.references(key)

    def list_unresolved(self, kind: str) -> list[tuple[str, ...] | None]:
        """The links of each faulty or external resource of ``kind``; None if they are unknown."""
        faulty = [mentions for key, mentions in self.changes.unresolved.items() if key.startswith(f"{kind}/")]
        return [*faulty, *(None for key in self.externals.external if key.startswith(f"{kind}/"))]

    def keys_of_kind(self, kind: Kind) -> set[str]:
        """Keys of all resources of ``kind``, including those that the change set removes."""
        keys = set(self.records.desired.keys_of_kind(kind))
        return keys | {key for key in self.changes.added if key.startswith(f"{kind}/")}

    def location_manifests(self) -> set[str]:
        """Keys of the locations that manifests declare, or that are recorded."""
        applied = {str(record.key) for record in self.records.applied.items(Kind.LOCATION)}
        return self.keys_of_kind(Kind.LOCATION) | applied

    def members(self, gvc: str) -> set[str]:
        """Keys of the recorded and the desired resources of ``gvc``."""
        records = self.records
        return {*self._new_members.get(gvc, ()), *records.desired.keys_of_gvc(gvc), *records.applied.keys_of_gvc(gvc)}

    def site(self, key: str) -> ResourceLocation:
        """The file and position of ``key``, which must be desired."""
        entry = self.entry(key)
        assert entry is not None, key
        source = entry.source if isinstance(entry, DesiredEntry) and entry.source != self.source else ""
        return ResourceLocation(entry.path, entry.blob, entry.position, source)

    def similar_keys(self, kind: str) -> list[str]:
        """Keys of ``kind``, at most the first thousand."""
        added = sorted(key for key in self.changes.added if key.startswith(f"{kind}/"))
        recorded = self.records.desired.keys_of_kind(kind, MAX_SIMILAR + len(self.removed))
        return [*added, *(key for key in recorded if key not in self.removed)][:MAX_SIMILAR]
