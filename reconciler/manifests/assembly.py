"""From changed files and their manifests to a change set: the resources added and removed.

It works on a difference: the index of the last good revision, and the new content of the changed files.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from reconciler.documents.limits import LIMITS, shown_size
from reconciler.documents.recognition import describe_form, find_form_of_name
from reconciler.documents.rules import RULES as READING
from reconciler.iteration import first_of
from reconciler.manifests.change_set import ChangeSet, Index, IndexedResource, PartialDocument
from reconciler.manifests.decoder import FOREIGN_FILE, NO_MANIFEST, Broken, Decoded
from reconciler.manifests.gvc_resolution import reference_in_gvc, request_in_gvc, resource_of
from reconciler.manifests.rules.text import quote_text
from reconciler.manifests.shared import Shared
from reconciler.model.finding import Finding, Severity
from reconciler.model.key import GVC_SCOPED, Kind
from reconciler.model.resource import GVC_PLACEHOLDER, LookupRequest, Manifest, Reference, Resource
from reconciler.model.revision import FileChange, is_json
from reconciler.model.rule import error_rule
from reconciler.printable import printable_finding

MOST_GVCS = 50
"""The maximum of GVCs to which a faulty document without a GVC may belong."""
MAX_LISTED = 80
"""The maximum of characters of a kind and name in a message; every valid one is shorter."""

RULES = (
    error_rule(
        "gvc-missing",
        "A workload, an identity or a volume set names its GVC, or is in or below a directory with the manifest of "
        "one.",
        "Without a GVC it has neither a location nor a full name.",
        "docs/platform/fields.md#which-gvc",
    ),
    error_rule(
        "gvc-ambiguous",
        "If the directory decides the GVC, the nearest one with any has exactly one, or the file itself has one.",
        "With two, the GVC of the resource would be ambiguous.",
        "docs/platform/fields.md#which-gvc",
    ),
    error_rule(
        "duplicate-resource",
        "A resource is declared once, in one file of one source.",
        "Two declarations would be applied alternately for ever, each undoing the other.",
        "docs/manifests.md#one-declaration",
    ),
    error_rule(
        "json-manifest",
        "A file in JSON that declared resources declares some still, or is deleted.",
        "Its content decides whether it is a manifest. Without this rule a misspelled kind would delete its resources.",
        "docs/manifests.md#json",
    ),
)
"""Rules about the place of a manifest."""

_SHAPELESS = frozenset({FOREIGN_FILE, "missing-field", "not-a-mapping", "template", "unknown-kind"})
"""Faults of what is no manifest at all, if no other fault comes first."""
_UNREADABLE = frozenset(rule.id for rule in READING)
"""Faults that may hide a whole document."""
Decode = Callable[[Sequence[FileChange]], Iterator[tuple[FileChange, Decoded]]]


def assemble_changes(
    source: str, changes: Sequence[FileChange], decode: Decode, index: Index, gvc: str = ""
) -> ChangeSet:
    """Decode the changed files, find each manifest's GVC, and report duplicate declarations.

    ``gvc`` is that of manifests that name none, where no directory decides it ("": none is).
    """
    return _Assembly(source, index, decode, gvc).run(changes)


def directory_of(path: str) -> str:
    """The directory of a path, "" for the root."""
    return path.rpartition("/")[0]


def _list_findings(path: str, decoded: Decoded) -> list[Finding]:
    """The findings of a file: one alone if its name says that it belongs to another tool."""
    findings = [Finding.at(path, fault) for fault in decoded.faults]
    first = min(findings, default=None)
    if first is None or decoded.manifests or decoded.broken or first.rule not in _SHAPELESS:
        return findings
    words = describe_form(find_form_of_name(path), path)
    if words is None:
        return findings
    return [msgspec.structs.replace(first, rule=FOREIGN_FILE, message=words.message, suggestion=words.suggestion)]


class _Found(NamedTuple):
    """A manifest, and the file that it is in."""

    path: str
    blob: str
    manifest: Manifest


class _Claim(NamedTuple):
    """One of several declarations of a key; without a resource where its file has not changed."""

    path: str
    line: int
    resource: Resource | None


class _Assembly:
    def __init__(self, source: str, index: Index, decode: Decode, gvc: str) -> None:
        self.source = source
        self.default_gvc = gvc
        self.index = index
        self.decode = decode
        self.change_set = ChangeSet()
        self.changed: set[str] = set()
        self.manifests: list[_Found] = []
        self.references: Shared[Reference] = Shared()
        self.questions: Shared[LookupRequest] = Shared()
        self.declared: dict[str, list[str]] = defaultdict(list)
        self.in_file: dict[str, list[str]] = {}
        self.nearest: dict[str, tuple[str, list[str]]] = {}
        self.clashes: dict[str, list[_Claim]] = defaultdict(list)
        self.broken: list[tuple[FileChange, Broken]] = []
        self.unclear: set[str] = set()
        self.first = index.empty()

    def run(self, changes: Sequence[FileChange]) -> ChangeSet:
        moved = self._take(changes)
        if moved:
            self._take(self._list_affected(moved))
        # In order of place, not of decoding: of two declarations of a key, the first counts.
        self.manifests.sort(key=lambda entry: (entry.path, entry.manifest.position), reverse=True)
        while self.manifests:
            # Each manifest is freed when its resource is made, so that 100,000 bodies are not in memory twice.
            self._place(self.manifests.pop())
        for key, claims in self.clashes.items():
            self._report_duplicate(key, claims)
        self._record_unresolved()
        self.change_set.findings.sort()
        return self.change_set

    def _take(self, changes: Sequence[FileChange]) -> set[str]:
        """Decode ``changes``; returns the directories whose set of GVCs has changed."""
        self.changed.update(change.path for change in changes)
        resources = self.index.at_paths(self.source, [change.path for change in changes if change.before])
        self.change_set.previous.update((entry.key, entry) for entry in resources)
        in_json = {entry.path: entry for entry in resources if is_json(entry.path)}
        fresh: dict[str, list[str]] = defaultdict(list)
        for change, decoded in self.decode([change for change in changes if change.after]):
            self.change_set.documents += decoded.documents
            if decoded == NO_MANIFEST and change.path in in_json:
                self._note_lost(in_json[change.path])
            names = self._collect(change, decoded)
            fresh[directory_of(change.path)] += names
            if names:
                self.in_file[change.path] = names
        stale: dict[str, list[str]] = defaultdict(list)
        for entry in resources:
            name, folder = entry.key.removeprefix("gvc/"), directory_of(entry.path)
            if name != entry.key:
                stale[folder].append(name)
        for directory, names in fresh.items():
            self.declared[directory].extend(names)
        return {folder for folder in {*fresh, *stale} if sorted(fresh[folder]) != sorted(stale[folder])}

    def _collect(self, change: FileChange, decoded: Decoded) -> list[str]:
        """Add the manifests of one file; returns the names of the GVCs that it declares, valid or not."""
        for manifest in decoded.manifests:
            self.manifests.append(_Found(change.path, change.after, self._intern(manifest)))
        self.change_set.unused_comments += [(change.path, unused_comment) for unused_comment in decoded.unused_comments]
        names = [manifest.name for manifest in decoded.manifests if manifest.kind is Kind.GVC]
        if decoded.faults or decoded.broken or decoded.documents > len(decoded.manifests):
            names += self._note_faults(change, decoded)
        return names

    def _note_lost(self, entry: IndexedResource) -> None:
        """Report a file in JSON that declared the resource ``entry`` and is no manifest now."""
        message = f"this file declared {entry.key}, and is no manifest now"
        hint = f"write `kind` and `name`, in at most {shown_size(LIMITS.file_bytes)} of JSON, or delete the file"
        self._finding(entry.path, 1, "json-manifest", message, hint)

    def _note_faults(self, change: FileChange, decoded: Decoded) -> list[str]:
        """Add the broken documents of one file; returns the names of the GVCs that they probably declare."""
        self.change_set.findings.extend(_list_findings(change.path, decoded))
        lost = decoded.documents > len(decoded.manifests) + len(decoded.broken)
        if lost or any(fault.rule in _UNREADABLE for fault in decoded.faults):
            self.unclear.add(directory_of(change.path))
        self.broken.extend((change, broken) for broken in decoded.broken)
        return [broken.key.removeprefix("gvc/") for broken in decoded.broken if broken.key.startswith("gvc/")]

    def _intern(self, manifest: Manifest) -> Manifest:
        """``manifest`` with the references and questions of equal ones, which saves 1 KB of memory for each manifest.

        Most of 100,000 manifests follow a few patterns, and the memory would cost more time than the lookups.
        """
        gvc, references = self.references.text(manifest.gvc), self.references.parts(manifest.references)
        return msgspec.structs.replace(
            manifest, gvc=gvc, references=references, questions=self.questions.parts(manifest.questions)
        )

    def _record_unresolved(self) -> None:
        for change, broken in self.broken:
            _, names = self._gvcs_for(change.path)
            kind, gvc, *name = broken.key.split("/", 2)
            if gvc == GVC_PLACEHOLDER and len(names) != 1 and not broken.guessed:
                self._infer_gvc(change.path, broken.line, f"{kind} {name[0]}")
            for gvc_name in names[:MOST_GVCS] or [""]:
                self._note_unresolved(broken, gvc_name)
            if (broken.references or broken.questions) and (len(names) == 1 or GVC_PLACEHOLDER not in broken.key):
                gvc = names[0] if names else ""
                references = tuple(reference_in_gvc(reference, gvc) for reference in broken.references)
                key = broken.key.replace(GVC_PLACEHOLDER, gvc)
                asked = tuple(request_in_gvc(question, gvc) for question in broken.questions)
                self.change_set.partial_documents.append(
                    PartialDocument(key, change.path, change.after, broken.position, references, asked)
                )

    def _note_unresolved(self, broken: Broken, gvc: str) -> None:
        key = broken.key.replace(GVC_PLACEHOLDER, gvc)
        mentions = broken.mentions and tuple(mention.replace(GVC_PLACEHOLDER, gvc) for mention in broken.mentions)
        former = self.change_set.unresolved.get(key, ())
        self.change_set.unresolved[key] = None if former is None or mentions is None else (*former, *mentions)

    def _list_affected(self, directories: Iterable[str]) -> list[FileChange]:
        """Unchanged files that may now belong to another GVC."""
        blobs: dict[str, str] = {}
        for directory in sorted(directories):
            paths = set(self.index.paths_below(self.source, directory)) - self.changed
            blobs.update((entry.path, entry.blob) for entry in self.index.at_paths(self.source, paths))
        return [FileChange(path, blob, blob) for path, blob in sorted(blobs.items())]

    def _place(self, entry: _Found) -> None:
        path, blob, manifest = entry
        gvc = manifest.gvc
        if manifest.kind in GVC_SCOPED and gvc == GVC_PLACEHOLDER:
            gvc = self._infer_gvc(path, manifest.line, f"{manifest.kind} {manifest.name}")
            if not gvc:
                return
        resource = resource_of(manifest, gvc, path, blob)
        key = str(resource.key)
        if key in self.change_set.added or self._other_declaration(key) is not None:
            self.clashes[key].append(_Claim(path, manifest.line, resource))
            return
        self.change_set.added[key] = resource

    def _other_declaration(self, key: str) -> IndexedResource | None:
        """The declaration of ``key`` in an unchanged file or another source, None if there is none."""
        if self.first or key in self.change_set.previous:
            return None
        resource = self.index.get(key)
        if resource is None or (resource.source == self.source and resource.path in self.changed):
            return None
        return resource

    def _report_duplicate(self, key: str, claims: list[_Claim]) -> None:
        """Report every declaration but the first, with the place of the first; another source counts as first."""
        resource, placed = self._other_declaration(key), self.change_set.added.pop(key, None)
        where = ""
        if placed is not None:
            claims.append(_Claim(placed.path, placed.line, placed))
        elif resource is not None and resource.source == self.source:
            claims.append(_Claim(resource.path, resource.line, None))
        elif resource is not None:
            where = f"{resource.path}:{resource.line} of source {resource.source}"
        claims.sort(key=lambda claim: (claim.path, claim.line))
        if not where:
            first = claims.pop(0)
            where = f"{first.path}:{first.line}"
            if first.resource is not None:
                self.change_set.added[key] = first.resource
        for claim in claims:
            self._finding(
                claim.path,
                claim.line,
                "duplicate-resource",
                f"{key} is declared twice: here and at {where}",
                "keep one of the two",
                key,
            )

    def _infer_gvc(self, path: str, line: int, what: str) -> str:
        """The GVC that the directory decides for ``what``; "", with a finding, if it decides none."""
        directory, names = self._gvcs_for(path)
        if len(names) == 1:
            return names[0]
        if len(what) > MAX_LISTED or not what.isprintable():
            what = quote_text(what)
        if names:
            self._finding(
                path,
                line,
                "gvc-ambiguous",
                f"{what} could belong to any GVC of {directory or 'the root'}: {first_of(names)}",
                f"write gvc: {names[0]}, give each GVC its own directory, or set `gvc` of the source",
            )
        elif not self._unclear(directory_of(path)):
            self._finding(
                path,
                line,
                "gvc-missing",
                f"{what} does not name its GVC and no directory above it declares one",
                "write gvc: NAME, put a manifest of kind gvc beside it, or set `gvc` of the source",
            )
        return ""

    def _unclear(self, directory: str) -> bool:
        """Whether a faulty file at or above ``directory`` may declare a GVC."""
        while directory and directory not in self.unclear:
            directory = directory_of(directory)
        return directory in self.unclear

    def _gvcs_for(self, path: str) -> tuple[str, list[str]]:
        """The directory that decides the GVC of ``path``, and its GVCs.

        A GVC in the file itself comes first. That of the source decides where there is none, and among several.
        """
        directory, names = self._gvcs_at(directory_of(path))
        own = self.in_file.get(path, [])
        if len(own) == 1:
            return directory, own
        if self.default_gvc and (not names or self.default_gvc in names):
            return directory, [self.default_gvc]
        return directory, names

    def _gvcs_at(self, directory: str) -> tuple[str, list[str]]:
        """The nearest directory at or above ``directory`` that declares GVCs, and their names, sorted."""
        decision = self.nearest.get(directory)
        if decision is None:
            unchanged = self.index.gvcs_in(self.source, directory)
            names = [name for name in unchanged if f"gvc/{name}" not in self.change_set.previous]
            names += self.declared.get(directory, [])
            above = directory_of(directory)
            decision = (directory, sorted(names)) if names or not directory else self._gvcs_at(above)
            self.nearest[directory] = decision
        return decision

    def _finding(self, path: str, line: int, rule: str, message: str, suggestion: str, key: str = "") -> None:
        self.change_set.findings.append(
            Finding(path, line, 1, rule, Severity.ERROR, printable_finding(message), printable_finding(suggestion), key)
        )
