"""The desired state as it would be after a change: the difference laid over what the index knows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import msgspec

from reconciler.decode.cache import Blobs, unpack
from reconciler.documents.ignore_comments import IgnoreComments
from reconciler.documents.locator import Locator
from reconciler.errors import SourceError
from reconciler.manifests.change_set import ChangeSet
from reconciler.manifests.decoder import Decoded, decode
from reconciler.manifests.desired_state import ResourceLocation
from reconciler.manifests.encrypted import UNNAMED_SECRET
from reconciler.manifests.gvc_resolution import resource_of
from reconciler.manifests.normalize import ManifestContext
from reconciler.model.finding import Pointer, Severity
from reconciler.model.key import Kind
from reconciler.model.platform import BUILT_IN_RESOURCES
from reconciler.model.query_match import QueryBudget
from reconciler.model.record import Record
from reconciler.model.resource import Reference, Resource
from reconciler.pipeline.externals import ExternalResources
from reconciler.pipeline.placement import GvcLocations
from reconciler.pipeline.prefetch import Prefetch
from reconciler.planning.policy import retention_reason
from reconciler.records.sql import stored_key
from reconciler.records.store import Records
from reconciler.records.tables.desired import Entry
from reconciler.secrets.host_files import HostSecretDirectory
from reconciler.secrets.resolve import resolve_host_secrets

Looked = TypeVar("Looked")

BodyCache = dict[tuple[str, str, int], bytes]
"""A key, a blob and the position in it, and the body that stands there; the values of secrets are not in it."""

MAX_LOCATORS = 32
"""Files kept for finding places in them; a file with many faults is parsed once for all of them."""

MAX_BODIES = 512
"""Bodies of neighbours that are kept from run to run: most files change near where others did."""

MAX_TYPED = 4096
"""Resources kept as rules see them; most of 100,000 are looked at for their own questions only. Also what is made."""


class DesiredStateView:
    """Answers every question about one source's next state; satisfies ``desired.Desired``."""

    def __init__(
        self, source: str, records: Records, blobs: Blobs, dialect: ManifestContext, around: ExternalResources,
        host: HostSecretDirectory | None = None,
    ) -> None:  # fmt: skip
        """``host`` is where secrets that lead to files find them; without it they are left as they stand."""
        self.source = source
        self.records = records
        self.blobs = blobs
        self.dialect = dialect
        self.externals = around
        self.host = host
        self.bodies: BodyCache = {}
        self.changes = ChangeSet()
        self.removed: frozenset[str] = frozenset()
        self._locators: dict[str, Locator] = {}
        self._comments: dict[str, IgnoreComments] = {}
        self._forget()

    def _forget(self) -> None:
        """Begin anew with what depends on the difference."""
        self.process_locations = self.externals.process_locations
        self.gvc_locations = GvcLocations(self.body, self._location_manifests, self.externals.locations)
        self._new_members: defaultdict[str, list[str]] = defaultdict(list)
        self._new_users: defaultdict[str, list[str]] | None = None
        self._users: dict[tuple[str, str], list[str]] = {}
        self._prefetch = Prefetch(self.records)
        self._looked: dict[tuple[str, Any], Any] = {}
        self._made: dict[tuple[str, ...], Any] = {}
        self.query_budget = QueryBudget()

    def apply_change_set(self, delta: ChangeSet) -> None:
        """Take ``delta`` for what has changed."""
        self.changes = delta
        self.removed = frozenset(delta.removed())
        self._forget()
        for key, resource in delta.added.items():
            self._new_members[resource.key.gvc].append(key)

    def entry(self, key: str) -> Entry | Resource | None:
        """What is known of where and how ``key`` is desired; None where it is not."""
        return self.changes.added.get(key) or (None if key in self.removed else self._prefetch.entry(key))

    def resource(self, key: str) -> Resource | None:
        """The desired resource ``key`` with its body; an unchanged one is decoded again from the cache or from Git.

        None where this source does not ask for it: what another one asks for is that one's to apply. Raises
        SourceError where it is a secret that can no longer be opened.
        """
        found = self.entry(key)
        if not isinstance(found, Entry):
            return found
        if found.source != self.source:
            return None
        resource, _ = self._reload(found)
        if resource is None:
            raise SourceError(f"{key} can no longer be opened ({found.path}:{found.line}); see `reconciler validate`")
        return resource

    def _reload(self, entry: Entry) -> tuple[Resource | None, bool]:
        """What ``entry`` stands for, None where that is a secret that can no longer be opened; and whether it lasts.

        What stands on this host may be another tomorrow, in the same file.
        """
        packed = self._prefetch.packed(entry.blob)
        said = unpack(packed) if packed else self._decoded(entry.blob)
        decoded = said if packed else self.with_host_secrets(said, entry.blob)
        manifest = next((each for each in decoded.manifests if each.position == entry.position), None)
        faulty = any(fault.severity is Severity.ERROR for fault in decoded.faults)
        if manifest is None or (faulty and manifest.kind is Kind.SECRET):
            return None, False
        return resource_of(manifest, stored_key(entry.key, "desired").gvc, entry.path, entry.blob), decoded is said

    def _decoded(self, blob: str) -> Decoded:
        return decode(self.blobs.read(blob), self.dialect)

    def with_host_secrets(self, decoded: Decoded, blob: str) -> Decoded:
        """What a file says, with the values of secrets that stand on this host."""
        if self.host is None:
            return decoded
        return resolve_host_secrets(decoded, self.host, self.dialect.secret_key, lambda: self.blobs.read(blob))

    def body(self, key: str) -> dict[str, Any] | None:
        """``related_body``, decoded."""
        body = self.related_body(key)
        return None if body is None else msgspec.json.decode(body, type=dict[str, Any])

    def related_body(self, key: str) -> bytes | None:
        """What ``key`` is like as a neighbour: as desired, or as recorded where it is another source's or is kept."""
        entry = self.entry(key)
        if isinstance(entry, Resource):
            return entry.body
        ours = entry is not None and entry.source == self.source
        body = self._reload_body(entry) if entry is not None and ours else None
        if body is not None:
            return body
        records = self.records.applied.get(key)
        if records and (ours or any(map(self._is_retained, records))):
            return records[0].body
        if entry is not None and self._prefetch.packed(entry.blob):
            return self._reload_body(entry)  # another source's, not applied yet
        return None

    def _reload_body(self, entry: Entry) -> bytes | None:
        at = (entry.key, entry.blob, entry.position)
        if at not in self.bodies:
            resource, lasting = self._reload(entry)
            if resource is None or not lasting:
                return None if resource is None else resource.body
            if len(self.bodies) >= MAX_BODIES:
                self.bodies.clear()
            self.bodies[at] = resource.body
        return self.bodies[at]

    def prefetch(self, keys: Iterable[str]) -> None:
        """Read together what is about to be asked about ``keys``."""
        if not self.is_first_load():
            self._prefetch.fetch({key for key in keys if key not in self.changes.added and key not in self.removed})

    def is_first_load(self) -> bool:
        """Whether the difference is all that is desired, of any source."""
        return self.records.desired.empty()

    def exists(self, target: str) -> bool:
        """Whether a link to ``target`` is satisfied (docs/platform/fields.md#what-a-link-may-lead-to)."""
        if any(
            target in known
            for known in (self.changes.added, self.changes.unresolved, self.externals.external, BUILT_IN_RESOURCES)
        ):
            return True
        if target.startswith(f"{Kind.SECRET}/") and UNNAMED_SECRET in self.changes.unresolved:
            return True
        if target.startswith((f"{Kind.LOCATION}/", "/")) and self.externals.settings_unknown:
            return True
        if target.startswith(f"{Kind.LOCATION}/") and target.partition("/")[2] in self.externals.locations:
            return True
        if target not in self.removed and self._prefetch.entry(target) is not None:
            return True
        return any(map(self._is_retained, self.records.applied.get(target)))

    def _is_retained(self, record: Record) -> bool:
        """Whether ``record`` is not for this source to delete, or kept."""
        return bool(record.source != self.source or self.externals.prune_disabled or retention_reason(record))

    def referrers(self, target: str, kind: str = "") -> list[str]:
        """Keys of unchanged resources (or of those of ``kind``) that refer to ``target``."""
        added, gone = self.changes.added, self.removed
        return [key for key in self.records.desired.referrers(target, kind) if key not in added and key not in gone]

    def users(self, key: str, kind: Kind) -> list[str]:
        """Keys of all resources of ``kind`` that refer to ``key``, in order."""
        if self._new_users is None:
            self._new_users = defaultdict(list)
            for user, resource in self.changes.added.items():
                for target in {reference.target for reference in resource.references}:
                    self._new_users[target].append(user)
        if (key, kind) not in self._users:
            fresh = (user for user in self._new_users.get(key, ()) if user.startswith(f"{kind}/"))
            self._users[key, kind] = sorted([*fresh, *self.referrers(key, kind)])
        return self._users[key, kind]

    def references_before(self, key: str) -> Sequence[Reference]:
        """What ``key`` referred to in the last good revision."""
        return self.records.desired.references(key)

    def typed(self, key: str, view: type[Looked]) -> Looked | None:
        """The resource ``key`` in normal form through ``view``; None where its body is not known here."""
        if (key, view) not in self._looked:
            if len(self._looked) >= MAX_TYPED:
                self._looked.clear()
            body = self.related_body(key)
            self._looked[key, view] = None if body is None else msgspec.json.decode(body, type=view)
        return self._looked[key, view]  # type: ignore[no-any-return]

    def memoized(self, name: tuple[str, ...], make: Callable[[], Looked]) -> Looked:
        """What ``make`` makes, kept under ``name`` for whoever asks next."""
        if name not in self._made:
            if len(self._made) >= MAX_TYPED:
                self._made.clear()
            self._made[name] = make()
        return self._made[name]  # type: ignore[no-any-return]

    def locations(self, gvc: str) -> tuple[str, ...] | None:
        """Every location of ``gvc``; none where the GVC is not known, None where its query takes too long."""
        return self.gvc_locations.of_few(gvc, self.query_budget)

    def known_locations(self) -> tuple[str, ...]:
        """Names of the locations that manifests declare or the settings bind."""
        return self.gvc_locations.known()

    def gvcs_with_location_query(self) -> list[str]:
        """Keys of all GVCs that find locations by a query."""
        keys = {*self.changes.added, *self.records.desired.keys_of_kind(Kind.GVC)}
        bodies = ((key, self.body(key)) for key in sorted(keys) if key.startswith(f"{Kind.GVC}/"))
        return [key for key, body in bodies if body and "locationQuery" in body["spec"].get("staticPlacement", ())]

    def unresolved(self, kind: str) -> list[tuple[str, ...] | None]:
        """What each faulty or external resource of ``kind`` links to; None where that is not known."""
        faulty = [mentions for key, mentions in self.changes.unresolved.items() if key.startswith(f"{kind}/")]
        return [*faulty, *(None for key in self.externals.external if key.startswith(f"{kind}/"))]

    def _location_manifests(self) -> set[str]:
        """Keys of the locations that manifests declare, or declared when they were applied."""
        keys = set(self.records.desired.keys_of_kind(Kind.LOCATION))
        keys |= {key for key in self.changes.added if key.startswith(f"{Kind.LOCATION}/")}
        return keys | {str(record.key) for record in self.records.applied.items(Kind.LOCATION)}

    def references(self, key: str) -> Sequence[Reference]:
        """What ``key`` refers to."""
        added = self.changes.added.get(key)
        if added is not None:
            return added.references
        return () if key in self.removed else self.records.desired.references(key)

    def site(self, key: str) -> ResourceLocation:
        """Where ``key`` is written."""
        found = self.entry(key)
        assert found is not None, key
        source = found.source if isinstance(found, Entry) and found.source != self.source else ""
        return ResourceLocation(found.path, found.blob, found.position, source)

    def similar_keys(self, kind: str) -> list[str]:
        """Keys of ``kind``; of many, the first thousand."""
        added = sorted(key for key in self.changes.added if key.startswith(f"{kind}/"))
        known = self.records.desired.keys_of_kind(kind)
        return [*added, *(key for key in known if key not in self.removed)][:1000]

    def position(self, site: ResourceLocation, pointer: Pointer) -> tuple[int, int]:
        """Line and column of a value; the file is read once more, since places are not kept."""
        locator = self._locators.get(site.blob)
        if locator is None:
            if len(self._locators) >= MAX_LOCATORS:
                self._locators.clear()
            locator = self._locators[site.blob] = Locator(self.blobs.read(site.blob))
        return locator.of(site.position).value(pointer)

    def silenced_by(self, site: ResourceLocation, line: int, rule: str) -> int:
        """The line of the comment in the file that silences the warnings of a rule on a line; 0 for none."""
        comments = self._comments.get(site.blob)
        if comments is None:
            comments = self._comments[site.blob] = IgnoreComments(self.blobs.read(site.blob))
        return comments.silencing(line, rule)

    def members(self, gvc: str) -> set[str]:
        """Keys of what is, or shall be, in ``gvc``."""
        known = self.records
        return {*self._new_members.get(gvc, ()), *known.desired.keys_of_gvc(gvc), *known.applied.keys_of_gvc(gvc)}
