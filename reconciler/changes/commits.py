"""Commits that change manifests in a source: checked as a whole before they reach its branch."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, NamedTuple

import msgspec
import pygit2
from pygit2.enums import ObjectType

from reconciler.access.manifest_links import EMPTY, FileLinks
from reconciler.changes.requests import ResourceEdit, SeenManifest
from reconciler.clock import Clock
from reconciler.documents.encoding import is_json_list
from reconciler.errors import EncryptionError, PushBroken, PushConflict, RefusedError, SourceError, SourceUnverified
from reconciler.manifests.decoder import decode_manifests
from reconciler.manifests.gvc_resolution import resource_of
from reconciler.model.key import Key, Kind
from reconciler.model.resource import GVC_PLACEHOLDER, Manifest, Resource
from reconciler.pipeline.planned_revision import PlannedRevision
from reconciler.pipeline.source_pipeline import SourcePipeline
from reconciler.printable import escape_text
from reconciler.records.store import Records
from reconciler.settings import Settings, SourceSettings
from reconciler.sops.creation_rules import FILE as RULES_FILE
from reconciler.sops.creation_rules import Creation, creation_of
from reconciler.source.file_history import FileHistories
from reconciler.source.libgit import lookup_name, open_git
from reconciler.source.mirror import Mirror
from reconciler.source.repository import Repository
from reconciler.source.signing import signed_commit
from reconciler.status.branch.branch import is_checked_out
from reconciler.status.branch.owner import file_access_of
from reconciler.status.branch.trees import write_tree

COMMITTER = "reconciler <reconciler@localhost>"
REQUEST_TRAILER = "Request-Id"
SEARCHED = 10_000
"""The newest commits among which one with a request id is searched: more than a day has."""
SEARCHED_CHANGES = 1_000
"""The newest commits among which a manifest is searched that a client saw."""
MOST_DECODED = 64
"""The files that are decoded at a time."""
REVIEW_BRANCH = "reconciler/change-"
"""How the names of branches for a review begin; the id of the request follows."""
_LINK = re.compile(r"https://[!-~]+")
_UNKNOWN = "it may still take the commit: repeat the request with its Idempotency-Key, or read the branch later"
_FAULTS = (pygit2.GitError, KeyError, ValueError, OSError)


Named = dict[tuple[str, str], list[Manifest]]
"""The manifests of a file by kind and name, in their order."""


class Author(NamedTuple):
    """Who a commit is by."""

    name: str
    email: str


class Commit(NamedTuple):
    """A commit that no branch has yet: ``parent`` is the tip that it was made on."""

    id: str
    parent: str


def make_manifest(key: Key, body: Mapping[str, Any]) -> dict[str, Any]:
    """``body`` (in normal form) as a manifest of ``key``, without the data of a secret."""
    fields = {name: value for name, value in body.items() if key.kind is not Kind.SECRET or name != "data"}
    return {"kind": str(key.kind), **fields} | ({"gvc": key.gvc} if key.gvc else {})


def make_author(principal: str, org: str) -> Author:
    """The author of a commit by ``principal``: a user by their address, others by name."""
    kind, _, name = principal.partition("/")
    return Author(name, name if kind == Kind.USER and "@" in name else f"{name.replace('/', '.')}@{kind}.{org}")


class Review(NamedTuple):
    """A branch for a review, and the link that the forge names to open one ("": it names none)."""

    branch: str
    link: str


class SourceWriter:
    """Writes to the branch of one source, over ``records`` of its own. Methods raise SourceError."""

    def __init__(self, settings: Settings, source: SourceSettings, records: Records, clock: Clock) -> None:
        if not source.branch or source.read_only:
            what = "is read-only" if source.read_only else "follows no branch"
            raise RefusedError(f"the source {source.name} {what}, so nothing can be written to it")
        self.records = records
        self.pipeline = SourcePipeline(settings, source, records, clock)
        self._clock = clock
        self._settings = source
        self._signing_key = settings.api.signing_key if settings.api is not None else None
        self._ref = f"refs/heads/{source.branch}"
        self._decoded: dict[str, Named] = {}
        self._git = open_git(self._repository.commondir)

    def renew(self) -> None:
        """Begin another use: what others changed on this host since the last one counts."""
        self.pipeline.renew_identity()
        self._decoded.clear()  # with another identity, a text may mean something else
        # An open repository never lets go of packs that Git has merged.
        self._git = open_git(self._repository.commondir)

    def close(self) -> None:
        """Close the records."""
        self.records.close()

    @property
    def _repository(self) -> Repository:
        return self.pipeline.source.repository

    @property
    def name(self) -> str:
        """The source's name."""
        return self._settings.name

    @property
    def branch(self) -> str:
        """The branch that the source follows."""
        return self._settings.branch

    def tip(self) -> str:
        """The newest commit of the branch, also of a remote one."""
        self.pipeline.source.refresh()
        return self.known_tip()

    def known_tip(self) -> str:
        """The newest commit of the branch that this host has."""
        return self._repository.resolve().commit

    def read(self, commit: str, path: str) -> str | None:
        """The text of the manifest at ``path`` in ``commit``; None if there is no such file."""
        try:
            entry = self._git[commit].peel(pygit2.Tree)[lookup_name(self._whole(path))]
            return entry.data.decode() if isinstance(entry, pygit2.Blob) else None
        except KeyError:
            return None
        except UnicodeDecodeError:
            raise RefusedError(f"{path} is not UTF-8: change it in Git") from None
        except _FAULTS as fault:
            raise self._make_write_error(fault) from None

    def meaning(self, text: str | None, key: Key) -> dict[str, Any] | None:
        """The manifest of ``key`` in normal form, as ``text`` declares it, without the data of a secret.

        None if it cannot be read.
        """
        resource = self.resource(text, key)
        return None if resource is None else make_manifest(key, msgspec.json.decode(resource.body))

    def resource(self, text: str | None, key: Key) -> Resource | None:
        """The resource ``key``, as ``text`` declares it; None if it cannot be read."""
        for manifest in () if text is None else self._manifests(text).get((key.kind, key.name), ()):
            if manifest.gvc in (key.gvc, GVC_PLACEHOLDER):
                return resource_of(manifest, key.gvc, "", "")
        return None

    def digest(self, text: str | None, key: Key) -> str:
        """The digest of the resource ``key`` in ``text``, "" for none."""
        resource = self.resource(text, key)
        return "" if resource is None else resource.digest

    def _manifests(self, text: str) -> Named:
        """The manifests in ``text``, decoded once: a change asks for each resource of a file."""
        manifests = self._decoded.get(text)
        if manifests is None:
            if len(self._decoded) >= MOST_DECODED:
                self._decoded.clear()
            manifests = self._decoded[text] = {}
            raw = text.encode()
            for manifest in decode_manifests(raw, self.pipeline.dialect, is_json=is_json_list(raw)).manifests:
                manifests.setdefault((manifest.kind, manifest.name), []).append(manifest)
        return manifests

    def normal_form(self, key: Key, desired: Mapping[str, Any]) -> dict[str, Any] | None:
        """``desired``, a manifest of ``key``, in normal form; None if it has faults.

        The data of a secret stays as it is: it may be missing, or a patch.
        """
        if key.kind is Kind.SECRET:
            return {"description": key.name, "tags": {}, **desired}
        return self.meaning(json.dumps(desired), key)

    def find_seen(self, key: Key, path: str, tip: str, seen: SeenManifest) -> str | None:
        """The text of the file in which a client has ``seen`` the manifest of ``key``.

        None if none of the newest commits that changed the file has it.
        """
        if seen.commit:
            is_there = self._repository.contains(tip, seen.commit)
            return self.read(seen.commit, path) if is_there else None
        left = iter(range(SEARCHED_CHANGES))
        history = FileHistories(self._repository, lambda: next(left, None) is not None)
        for touch in history.of(path, tip, ""):
            if not touch.commit or (seen.author and self._git[touch.commit].author.email != seen.author):
                continue
            text = self.read(touch.commit, path)
            resource = self.resource(text, key)
            if resource is not None and (seen.author or resource.digest == seen.digest):
                return text
        return None

    def admit(
        self, edits: Sequence[ResourceEdit], before: Mapping[str, str | None], after: Mapping[str, str | None]
    ) -> list[ResourceEdit]:
        """Let each of ``edits`` decide on what it changes, from the texts ``before`` (the newest commit) to ``after``.

        What a reader saw may be older, and a permission that was taken away since must not come back. Returns those
        whose manifest cannot be read as a whole afterwards: the check has to find errors in them.
        """
        unread = []
        written = [edit for edit in edits if edit.wanted is not None]
        dialect = self.pipeline.dialect
        old = {path: FileLinks(before.get(path), dialect) for path in {edit.path for edit in written}}
        new = {path: FileLinks(after[path], dialect) if path in after else old[path] for path in old}
        formers = {edit.key: old[edit.path].of(edit.key) for edit in written}
        created = {key for key, links in formers.items() if links is None}
        for edit in written:
            if edit.admit is None:
                continue
            links = new[edit.path].of(edit.key)
            if links is not None:
                edit.admit(formers[edit.key] or EMPTY, links, created)
            if links is None or not links.body:
                unread.append(edit)
        return unread

    def adds(self, key: Key) -> bool:
        """Whether the newest commit declares ``key``, and the last good one does not."""
        return str(key) in self.pipeline.plan_revision(self.tip()).loaded.change_set.added

    def creation_rule(self, commit: str, path: str) -> Creation | None:
        """The first rule for ``path`` in the nearest ``.sops.yaml`` of ``commit``; None if none matches."""
        whole = PurePosixPath(self._whole(path))
        for folder in whole.parents:
            try:
                entry = self._git[commit].peel(pygit2.Tree)[lookup_name(str(folder / RULES_FILE))]
            except KeyError:
                continue
            except _FAULTS as fault:
                raise self._make_write_error(fault) from None
            try:
                raw = entry.data if isinstance(entry, pygit2.Blob) else b""
                return creation_of(raw, whole.relative_to(folder).as_posix())
            except EncryptionError as error:
                raise RefusedError(f"{folder / RULES_FILE} of the source {self.name}: {error}") from None
        return None

    def commit(self, parent: str, files: Mapping[str, str | None], message: str, author: Author) -> Commit:
        """Make a commit with ``files`` (text by path, None to delete) on ``parent``; no branch has it yet."""
        changes = {self._whole(path): None if text is None else text.encode() for path, text in files.items()}
        at = int(self._clock.now())
        try:
            tree = write_tree(self._git, self._git[parent].peel(pygit2.Tree), changes)
            people = f"author {_write_name(author)} {at} +0000\ncommitter {COMMITTER} {at} +0000\n"
            head = f"tree {tree}\nparent {parent}\n{people}"
            key = self._signing_key
            content = f"{head}\n{message}\n".encode() if key is None else signed_commit(head, message, key)
            with file_access_of(self._repository.commondir):
                new = str(self._git.write(ObjectType.COMMIT, content))
        except _FAULTS as fault:
            raise self._make_write_error(fault) from None
        return Commit(new, parent)

    def check(self, commit: Commit) -> PlannedRevision:
        """What the daemon would make of ``commit``: its findings, and its plan.

        Raises RefusedError if the source does not accept its signature.
        """
        try:
            return self.pipeline.plan_revision(commit.id)
        except SourceUnverified as error:
            raise RefusedError(f"{error}: set `api.signingKey` in the settings to a key that it allows") from None

    def publish(self, commit: Commit) -> None:
        """Move the branch to ``commit``. Raises PushConflict if others moved it since, PushRefused."""
        mirror = self.pipeline.source.mirror
        if mirror is not None:
            self._push(mirror, commit)
            return
        where = f"the branch {self.branch} of the source {self.name}"
        moved = PushConflict(f"{where} was moved by others meanwhile")
        try:
            if is_checked_out(self._git, self._ref):
                raise RefusedError(
                    f"the branch {self.branch} is checked out in a work tree of the source {self.name}, which would "
                    "not follow: use a bare repository, or `api: {writes: branch}`"
                )
            with file_access_of(self._repository.commondir):
                reference = self._git.lookup_reference(lookup_name(self._ref))
                if str(reference.target) != commit.parent:
                    raise moved
                reference.set_target(commit.id)
        except _FAULTS as fault:
            lock = self._repository.commondir / f"{self._ref}.lock"
            if self._repository.resolve().commit != commit.parent:
                raise moved from None
            if lock.exists():  # by another writer, or left behind by one that was killed
                raise PushConflict(f"{where} is locked: {lock} exists") from None
            raise self._make_write_error(fault) from None

    def _push(self, mirror: Mirror, commit: Commit) -> None:
        """Push ``commit``; if the connection breaks, ask the remote whether it took it."""
        try:
            mirror.push(f"{commit.id}:{self._ref}", commit.parent)
        except PushBroken as error:
            with contextlib.suppress(SourceError):
                if self._repository.contains(self.tip(), commit.id):
                    return
            raise PushBroken(f"{error}; {_UNKNOWN}") from None

    def publish_review(self, commit: Commit, request_id: str) -> Review:
        """Create the branch of ``request_id`` at ``commit``, for a review. Raises PushConflict if it exists."""
        branch = f"{REVIEW_BRANCH}{request_id}"
        ref = f"refs/heads/{branch}"
        mirror = self.pipeline.source.mirror
        if mirror is not None:
            words = mirror.push(f"{commit.id}:{ref}", "")
            links = [link[0] for line in words if (link := _LINK.search(line))]
            return Review(branch, links[0] if links else "")
        try:
            with file_access_of(self._repository.commondir):
                self._git.references.create(ref, commit.id)
            return Review(branch, "")
        except _FAULTS as fault:
            raise self._make_write_error(fault) from None

    def find_review(self, request_id: str) -> str:
        """The commit of the branch for a review of ``request_id``, "" if there is no such branch."""
        ref = f"refs/heads/{REVIEW_BRANCH}{request_id}"
        mirror = self.pipeline.source.mirror
        if mirror is not None:
            return mirror.fetch_ref(ref)
        try:
            reference = self._git.references.get(lookup_name(ref))
        except _FAULTS as fault:
            raise self._make_write_error(fault) from None
        return "" if reference is None else str(reference.target)

    def find_request(self, request_id: str, tip: str, before: str = "") -> str:
        """The commit with the trailer of ``request_id``, among the newest of ``tip`` without those of ``before``.

        "" if there is none.
        """
        trailer = f"\n{REQUEST_TRAILER}: {request_id}\n"
        try:
            walk = self._git.walk(tip)
            if before:
                walk.hide(before)
            newest = (commit for commit, _ in zip(walk, range(SEARCHED), strict=False))
            return next((str(commit.id) for commit in newest if trailer in f"{commit.message}\n"), "")
        except _FAULTS as fault:
            raise self._make_write_error(fault) from None

    def _whole(self, path: str) -> str:
        """The path in the repository of ``path`` below that of the source."""
        below = self._settings.path.strip("/")
        return path if below in ("", ".") else f"{below}/{path}"

    def _make_write_error(self, fault: object) -> SourceError:
        return SourceError(f"the source {self.name} cannot be written: {fault}")


def _write_name(author: Author) -> str:
    """``author`` as in a commit, without the characters that end a name there."""
    name, email = (escape_text(text).translate({ord(char): None for char in "<>\n"}) for text in author)
    return f"{name} <{email}>"
