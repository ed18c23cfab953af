"""The desired state as it would be after a change: the difference laid over what the index knows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from itertools import chain, islice
from typing import Any, TypeVar

import msgspec

from reconciler.decode.cache import Blobs, unpack
from reconciler.documents.ignore_comments import Ignored
from reconciler.documents.locator import Locator
from reconciler.errors import SourceError
from reconciler.manifests.assembly import resource_of
from reconciler.manifests.change_set import Delta
from reconciler.manifests.decoder import Decoded, decode
from reconciler.manifests.desired_state import Site
from reconciler.manifests.encrypted import NAMELESS
from reconciler.manifests.links import BUILT_IN
from reconciler.manifests.normalize import Dialect
from reconciler.manifests.reference_check import similar_keys
from reconciler.model.finding import Pointer, Severity
from reconciler.model.key import Key, Kind
from reconciler.model.record import Record
from reconciler.model.resource import Reference, Resource
from reconciler.pipeline.externals import Surroundings
from reconciler.pipeline.placement import Places
from reconciler.pipeline.prefetch import Ahead
from reconciler.planning.policy import keeps
from reconciler.records.store import Records
from reconciler.records.tables.desired import Entry
from reconciler.secrets.host_files import Host
from reconciler.secrets.resolve import with_hosted

Looked = TypeVar("Looked")

Bodies = dict[tuple[str, str, int], bytes]
"""A key, a blob and the position in it, and the body that stands there; the values of secrets are not in it."""

FILES_OPEN = 32
"""Files kept for finding places in them; a file with many faults is parsed once for all of them."""

BODIES = 512
"""Bodies of neighbours that are kept from run to run: most files change near where others did."""

LOOKED_AT = 4096
"""Resources kept as rules see them; of the 100,000 of a first load most are looked at for their own questions only."""


class View:
    """Answers every question about one source's next state; satisfies ``desired.Desired``."""

    def __init__(
        self, source: str, records: Records, blobs: Blobs, dialect: Dialect, around: Surroundings,
        host: Host | None = None,
    ) -> None:  # fmt: skip
        """``host`` is where secrets that lead to files find them; without it they are left as they stand."""
        self.source = source
        self.records = records
        self.blobs = blobs
        self.dialect = dialect
        self.around = around
        self.host = host
        self.bodies: Bodies = {}
        self.delta = Delta()
        self.gone: frozenset[str] = frozenset()
        self._locators: dict[str, Locator] = {}
        self._comments: dict[str, Ignored] = {}
        self._forget()

    def _forget(self) -> None:
        """Begin anew with what depends on the difference."""
        self.places = Places(self.body, self._location_manifests, self.around.locations)
        self._new_members: defaultdict[str, list[str]] = defaultdict(list)
        self._new_users: defaultdict[str, list[str]] | None = None
        self._users: dict[tuple[str, str], list[str]] = {}
        self._ahead = Ahead(self.records)
        self._looked: dict[tuple[str, Any], Any] = {}
        self._verdicts: dict[tuple[str, ...], bool] = {}

    def overlay(self, delta: Delta) -> None:
        """Take ``delta`` for what has changed."""
        self.delta = delta
        self.gone = frozenset(delta.removed())
        self._forget()
        for key, resource in delta.added.items():
            self._new_members[resource.key.gvc].append(key)

    def entry(self, key: str) -> Entry | Resource | None:
        """What is known of where and how ``key`` is desired; None where it is not."""
        return self.delta.added.get(key) or (None if key in self.gone else self._ahead.entry(key))

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
        resource, _ = self._again(found)
        if resource is None:
            raise SourceError(f"{key} can no longer be opened ({found.path}:{found.line}); see `reconciler validate`")
        return resource

    def _again(self, entry: Entry) -> tuple[Resource | None, bool]:
        """What ``entry`` stands for, None where that is a secret that can no longer be opened; and whether it lasts.

        What stands on this host may be another tomorrow, in the same file.
        """
        packed = self._ahead.packed(entry.blob)
        said = unpack(packed) if packed else self._decoded(entry.blob)
        decoded = said if packed else self.settled(said, entry.blob)
        manifest = next((each for each in decoded.manifests if each.position == entry.position), None)
        faulty = any(fault.severity is Severity.ERROR for fault in decoded.faults)
        if manifest is None or (faulty and manifest.kind is Kind.SECRET):
            return None, False
        return resource_of(manifest, Key.parse(entry.key).gvc, entry.path, entry.blob), decoded is said

    def _decoded(self, blob: str) -> Decoded:
        return decode(self.blobs.read(blob), self.dialect)

    def settled(self, decoded: Decoded, blob: str) -> Decoded:
        """What a file says, with the values of secrets that stand on this host."""
        if self.host is None:
            return decoded
        return with_hosted(decoded, self.host, self.dialect.secret_key, lambda: self.blobs.read(blob))

    def body(self, key: str) -> dict[str, Any] | None:
        """``neighbour``, decoded."""
        body = self.neighbour(key)
        decoded: dict[str, Any] | None = None if body is None else msgspec.json.decode(body)
        return decoded

    def neighbour(self, key: str) -> bytes | None:
        """What ``key`` is like as a neighbour: as desired, or as recorded where it is another source's or is kept."""
        entry = self.entry(key)
        if isinstance(entry, Resource):
            return entry.body
        ours = entry is not None and entry.source == self.source
        body = self._body_again(entry) if entry is not None and ours else None
        if body is not None:
            return body
        records = self.records.applied.get(key)
        if records and (ours or any(map(self._stays, records))):
            return records[0].body
        if entry is not None and self._ahead.packed(entry.blob):
            return self._body_again(entry)  # another source's, not applied yet
        return None

    def _body_again(self, entry: Entry) -> bytes | None:
        at = (entry.key, entry.blob, entry.position)
        if at not in self.bodies:
            resource, lasting = self._again(entry)
            if resource is None or not lasting:
                return None if resource is None else resource.body
            if len(self.bodies) >= BODIES:
                self.bodies.clear()
            self.bodies[at] = resource.body
        return self.bodies[at]

    def expect(self, keys: Iterable[str]) -> None:
        """Read together what is about to be asked about ``keys``."""
        if not self.nothing_else():
            self._ahead.expect({key for key in keys if key not in self.delta.added and key not in self.gone})

    def nothing_else(self) -> bool:
        """Whether the difference is all that is desired, of any source."""
        return self.records.desired.empty()

    def exists(self, target: str) -> bool:
        """Whether a link to ``target`` is satisfied (4-fields.md, section 2)."""
        if any(target in known for known in (self.delta.added, self.delta.doubtful, self.around.external, BUILT_IN)):
            return True
        if target.startswith(f"{Kind.SECRET}/") and NAMELESS in self.delta.doubtful:
            return True
        if target.startswith((f"{Kind.LOCATION}/", "/")) and self.around.unknown:
            return True
        if target.startswith(f"{Kind.LOCATION}/") and target.partition("/")[2] in self.around.locations:
            return True
        if target not in self.gone and self._ahead.entry(target) is not None:
            return True
        return any(map(self._stays, self.records.applied.get(target)))

    def _stays(self, record: Record) -> bool:
        """Whether ``record`` is not for this source to delete, or kept."""
        return bool(record.source != self.source or self.around.keeps_all or keeps(record))

    def referrers(self, target: str, kind: str = "") -> list[str]:
        """Keys of unchanged resources (or of those of ``kind``) that refer to ``target``."""
        added, gone = self.delta.added, self.gone
        return [key for key in self.records.desired.referrers(target, kind) if key not in added and key not in gone]

    def users(self, key: str, kind: Kind) -> list[str]:
        """Keys of all resources of ``kind`` that refer to ``key``, in order."""
        if self._new_users is None:
            self._new_users = defaultdict(list)
            for user, resource in self.delta.added.items():
                for target in {reference.target for reference in resource.references}:
                    self._new_users[target].append(user)
        if (key, kind) not in self._users:
            fresh = (user for user in self._new_users.get(key, ()) if user.startswith(f"{kind}/"))
            self._users[key, kind] = sorted([*fresh, *self.referrers(key, kind)])
        return self._users[key, kind]

    def references_before(self, key: str) -> Sequence[Reference]:
        """What ``key`` referred to in the last good revision."""
        return self.records.desired.references(key)

    def look(self, key: str, view: type[Looked]) -> Looked | None:
        """The resource ``key`` in normal form through ``view``; None where its body is not known here."""
        if (key, view) not in self._looked:
            if len(self._looked) >= LOOKED_AT:
                self._looked.clear()
            body = self.neighbour(key)
            self._looked[key, view] = None if body is None else msgspec.json.decode(body, type=view)
        found: Looked | None = self._looked[key, view]
        return found

    def once(self, name: tuple[str, ...], judge: Callable[[], bool]) -> bool:
        """What ``judge`` says, asked once for each ``name``."""
        if name not in self._verdicts:
            self._verdicts[name] = judge()
        return self._verdicts[name]

    def locations(self, gvc: str) -> tuple[str, ...]:
        """Every location of ``gvc``, bound here or not; none where the GVC is not known."""
        return self.places.of(gvc)

    def known_locations(self) -> tuple[str, ...]:
        """Names of the locations that manifests declare or the settings bind."""
        return self.places.known()

    def searching(self) -> list[str]:
        """Keys of all GVCs that find locations by a query."""
        keys = {*self.delta.added, *self.records.desired.keys_of_kind(Kind.GVC)}
        bodies = ((key, self.body(key)) for key in sorted(keys) if key.startswith(f"{Kind.GVC}/"))
        return [key for key, body in bodies if body and "locationQuery" in body["spec"].get("staticPlacement", ())]

    def unsure(self, kind: str) -> bool:
        """Whether a faulty document means to be of ``kind``, or the settings list one of it as external."""
        return any(key.startswith(f"{kind}/") for keys in (self.delta.doubtful, self.around.external) for key in keys)

    def _location_manifests(self) -> set[str]:
        """Keys of the locations that manifests declare, or declared when they were applied."""
        keys = set(self.records.desired.keys_of_kind(Kind.LOCATION))
        keys |= {key for key in self.delta.added if key.startswith(f"{Kind.LOCATION}/")}
        return keys | {str(record.key) for record in self.records.applied.items(Kind.LOCATION)}

    def references(self, key: str) -> Sequence[Reference]:
        """What ``key`` refers to."""
        added = self.delta.added.get(key)
        if added is not None:
            return added.references
        return () if key in self.gone else self.records.desired.references(key)

    def site(self, key: str) -> Site:
        """Where ``key`` is written."""
        found = self.entry(key)
        assert found is not None, key
        source = found.source if isinstance(found, Entry) and found.source != self.source else ""
        return Site(found.path, found.blob, found.position, source)

    def similar(self, target: str) -> list[str]:
        """Keys of the same kind; of many, the first thousand."""
        known = (key for key, _ in self.records.desired.scan() if key not in self.gone)
        everything = chain(sorted(self.delta.added), known)
        return similar_keys(target, lambda start: islice((k for k in everything if k.startswith(start)), 1000))

    def place(self, site: Site, pointer: Pointer) -> tuple[int, int]:
        """Line and column of a value; the file is read once more, since places are not kept."""
        locator = self._locators.get(site.blob)
        if locator is None:
            if len(self._locators) >= FILES_OPEN:
                self._locators.clear()
            locator = self._locators[site.blob] = Locator(self.blobs.read(site.blob))
        return locator.of(site.position).of(pointer)

    def ignored(self, site: Site, line: int, rule: str) -> bool:
        """Whether a comment in the file silences the warnings of a rule on a line."""
        comments = self._comments.get(site.blob)
        if comments is None:
            comments = self._comments[site.blob] = Ignored(self.blobs.read(site.blob))
        return (line, rule) in comments

    def members(self, gvc: str) -> set[str]:
        """Keys of what is, or shall be, in ``gvc``."""
        known = self.records
        return {*self._new_members.get(gvc, ()), *known.desired.keys_of_gvc(gvc), *known.applied.keys_of_gvc(gvc)}
