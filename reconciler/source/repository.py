"""Reads one repository: revisions, changed files and blobs, directly from Git's objects."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec
import pygit2
from pygit2.enums import ObjectType

from reconciler.documents.json.recognition import is_json_manifest
from reconciler.documents.limits import LIMITS
from reconciler.errors import SourceError, SourceNotFound
from reconciler.model.revision import SUFFIXES, FileChange, Revision, blob_id, blob_name, is_json
from reconciler.model.suggest import find_closest_word
from reconciler.printable import replace_unsafe
from reconciler.source.ancestry import is_ancestor
from reconciler.source.changes import TreeChanges, blob_to_read, classify_differences
from reconciler.source.expression import Expression, parse_expression
from reconciler.source.file_filter import IGNORE_FILE, MOST_IGNORE_BYTES, REPOSITORY_FILE, TOO_LARGE, FileFilter
from reconciler.source.libgit import PackDirectory, describe_clone, lookup_name, open_git
from reconciler.source.tree_diff import TreeEntry, TreeReader, Walk, parse_tree
from reconciler.source.url import wanted_ref

if TYPE_CHECKING:
    from reconciler.settings import SourceSettings
    from reconciler.source.signature import Signatures

Answer = TypeVar("Answer")

_GIT_FAULTS = (pygit2.GitError, KeyError, ValueError, OSError)


def _make_missing_error(source: str, path: Path, fault: object = "there is no repository any more") -> SourceNotFound:
    """The error of a repository that cannot be opened: each place says it in the same words."""
    why = _explain_unreadable(path, fault)
    return SourceNotFound(f"source {source}: no Git repository can be read at {path}: {why}")


def _explain_unreadable(path: Path, fault: object) -> str:
    """Why the repository at ``path`` cannot be opened: libgit2 calls what a user may not read missing."""
    inner = path / ".git"
    try:
        with os.scandir(inner if inner.is_dir() else path):
            return str(fault)
    except FileNotFoundError:
        return "there is no such directory"
    except PermissionError:
        return "its user may not read it; allow that, for example by a group"
    except OSError as error:
        return error.strerror or str(error)


class Repository:
    """A bare repository, the ``.git`` of a work tree, or our mirror of a remote; opened once.

    Only objects and refs are read: no work tree, no hook, no filter, no configuration except its own.
    """

    def __init__(self, path: Path, settings: SourceSettings) -> None:
        """Raises SourceNotFound if there is no repository at ``path``."""
        try:
            self._git = open_git(path)
        except _GIT_FAULTS as fault:
            raise _make_missing_error(settings.name, path, fault) from None
        except SourceError as fault:
            raise SourceError(f"source {settings.name}: {fault}") from None
        self._odb = self._git.odb
        self._packs = PackDirectory(self.commondir)
        self._path = path
        self.settings = settings
        self._last: tuple[str, Revision] | None = None
        self._selections: dict[str, FileFilter] = {}
        self._manifest = self._without_manifests = ""
        self._trees = TreeReader(self._read_tree)
        self._contained: dict[tuple[str, str], bool] = {}
        self._signatures = _make_signature_checker(settings)

    @property
    def gitdir(self) -> Path:
        """The directory that contains HEAD."""
        return Path(self._git.path)

    @property
    def commondir(self) -> Path:
        """The directory of refs and objects: ``gitdir``, except in additional work trees of ``git worktree``."""
        pointer = self.gitdir / "commondir"
        return (self.gitdir / pointer.read_text().strip()).resolve() if pointer.is_file() else self.gitdir

    def resolve(self, expression: str = "", head: str = "") -> Revision:
        """The current revision of the source, or that of ``expression``, in which ``HEAD`` means ``head``.

        See ``parse_expression``. Sees changes of refs by other programs, packed or not. Raises SourceNotFound if
        branch, tag, commit or path does not exist, SourceUnverified if a signature that the settings require is
        missing, SourceError if objects are missing or damaged.
        """
        self._reopen()
        reference = self._resolve_expression(expression, head)
        target = self._find(reference, expression)
        if (signatures := self._signatures) is not None:
            self._ask(lambda: signatures.check(self._git, target, reference.ref))
        ref = _shorten_ref_name(expression or reference.text)
        if self._last is None or self._last[0] != target or self._last[1].ref != ref:
            self._last = (target, self._revision(ref, target))
        return self._last[1]

    def _reopen(self) -> None:
        """Open the repository anew if its packs changed: see ``PackDirectory``."""
        if self._packs.has_changed():
            self._git = self._ask(lambda: open_git(self._path))
            self._odb = self._git.odb

    def _resolve_expression(self, expression: str, head: str) -> Expression:
        own = self.settings.commit or wanted_ref(self.settings)
        if not expression:
            return Expression(own, "" if self.settings.commit else own)
        try:
            return parse_expression(expression, own, head, lambda ref: ref in self._git.references)
        except _GIT_FAULTS as fault:
            self._still_there()
            raise SourceNotFound(f"source {self.settings.name}: {expression!r} names no revision: {fault}") from None

    def contains(self, newer: str, older: str) -> bool:
        """Whether commit ``older`` is ``newer`` or one of its ancestors; False for an unknown commit."""
        if newer == older or not self.holds(older):
            return newer == older
        if (newer, older) not in self._contained:
            self._contained = {(newer, older): self._ask(lambda: is_ancestor(self._odb, older, newer))}
        return self._contained[newer, older]

    def check_signed(self, newer: str, older: str) -> None:
        """Raises SourceUnverified if the settings require signed history and a commit since ``older`` is unsigned."""
        if (signatures := self._signatures) is not None:
            self._ask(lambda: signatures.check_since(self._git, older, newer))

    def holds(self, name: str) -> bool:
        """Whether the object ``name`` (a full id) still exists; Git removes what a force push left behind."""
        # As `name in self._git`, which also reads the object, as wide as a tree may be.
        return bool(name) and self._odb.exists(pygit2.Oid(hex=name))

    def compare(self, before: str, after: str) -> TreeChanges:
        """Manifest files that differ between two trees (``""``: no tree), at a cost proportional to the change.

        The filter of ``after`` decides which files are manifests; see ``selection`` for its changes. Raises SourceError
        if objects are missing, damaged or beyond the limits of Walk.
        """
        takes = self._selection(after or before).matches
        return classify_differences(
            Walk(self._trees).differences(_decode_tree_id(before), _decode_tree_id(after)), takes
        )

    def changes(self, before: str, after: str) -> Iterator[FileChange]:
        """The changes of ``compare``."""
        yield from self.compare(before, after).changes

    def has_manifests(self, tree: str) -> bool:
        """Whether ``tree`` contains a manifest; checks the last found one first, and stops at the first.

        Of a file in JSON, the content decides.
        """
        if tree == self._without_manifests:
            return False
        takes = self._selection(tree).matches
        if self._manifest and takes(self._manifest) and self._is_manifest(self._file_at(tree, self._manifest)):
            return True
        everything = Walk(self._trees).differences(b"", _decode_tree_id(tree))
        manifest = next(
            (difference for difference in everything if self._is_manifest(blob_to_read(difference, takes))), None
        )
        self._manifest = manifest.path.decode() if manifest is not None else ""
        self._without_manifests = tree if manifest is None else ""
        return manifest is not None

    def _is_manifest(self, blob: str) -> bool:
        """Whether ``blob`` ("": none) is a manifest as far as its name, or the content of JSON, decides."""
        if not is_json(blob):
            return bool(blob)
        return self.size(blob) <= LIMITS.file_bytes and is_json_manifest(self.read(blob))

    def selection(self, revision: Revision) -> str:
        """A digest of what selects files and places manifests: if it changes, all files must be loaded again."""
        chosen = (
            self.settings.path,
            self.settings.gvc,
            tuple(self.settings.include),
            tuple(self.settings.exclude),
            SUFFIXES,
        )
        files = (self._find_root_file(revision.tree, IGNORE_FILE), self.find_settings_file(revision))
        return hashlib.sha256(msgspec.json.encode((*chosen, *files))).hexdigest()

    def folder(self, tree: str, path: str) -> dict[bytes, TreeEntry]:
        """The entries of the folder ``path`` ("": the top) below ``tree``, by name; none if it is not there.

        Raises SourceError.
        """
        id_ = _decode_tree_id(tree)
        for name in path.encode().split(b"/") if path else ():
            below = parse_tree(self._trees.content(id_)).get(name + b"/")
            if below is None:
                return {}
            id_ = below.id
        return parse_tree(self._trees.content(id_))

    def size(self, blob: str) -> int:
        """Size of ``blob`` in bytes, without loading it. Raises SourceError if it is missing."""
        return self._ask(lambda: self._odb.read_header(blob_id(blob))[1])

    def read(self, blob: str) -> bytes:
        """The content of ``blob``; check its size first. Raises SourceError if it is missing or damaged."""
        return self._ask(lambda: self._odb.read(blob_id(blob))[1])

    def _file_at(self, tree: str, path: str) -> str:
        """The blob of the regular file at ``path``, "" for none; searches the bytes of trees without parsing them."""
        id_ = _decode_tree_id(tree)
        *folders, name = path.encode().split(b"/")
        try:
            for folder in folders:
                _, _, after = self._trees.content(id_).partition(b"40000 " + folder + b"\0")
                id_ = after[: len(id_)]
            _, _, after = self._trees.content(id_).partition(b"100644 " + name + b"\0")
        except (SourceError, ValueError):
            return ""
        return blob_name(path, after[: len(_decode_tree_id(tree))].hex()) if after else ""

    def _ask(self, question: Callable[[], Answer]) -> Answer:
        try:
            return question()
        except _GIT_FAULTS as fault:
            self._still_there()
            advice = self._describe_clone() or "; run git fsck there"
            raise SourceError(
                f"source {self.settings.name}: an object is missing or damaged in {self._path}: {fault}{advice}"
            ) from None

    def _describe_clone(self) -> str:
        """What the clone leaves out, or the one whose objects it borrows: see ``describe_clone``."""
        borrowed = self.commondir / "objects" / "info" / "alternates"
        clones = [self.commondir]
        with suppress(OSError):
            clones += [Path(line).parent for line in borrowed.read_text().splitlines() if line]
        return next(filter(None, map(describe_clone, clones)), "")

    def _still_there(self) -> None:
        if not self.gitdir.is_dir():
            raise _make_missing_error(self.settings.name, self._path)

    def _read_tree(self, raw: bytes) -> bytes:
        """The bytes of a tree."""
        kind, read = self._ask(lambda: self._odb.read(pygit2.Oid(raw=raw)))
        if kind != ObjectType.TREE:
            raise SourceError(f"source {self.settings.name}: object {raw.hex()} should be a tree and is not")
        return bytes(read)

    def _find(self, expression: Expression, written: str) -> str:
        """Id of the object for ``expression``; refs are looked up directly, since a poll does only this."""
        try:
            if expression.ref == expression.text:
                return str(self._git.lookup_reference(lookup_name(expression.ref)).resolve().target)
            return str(self._git.revparse_single(expression.text).id)
        except _GIT_FAULTS:
            self._still_there()
            raise SourceNotFound(f"source {self.settings.name}: {self._missing(written or expression.text)}") from None

    def _missing(self, name: str) -> str:
        kind, _, short = name.removeprefix("refs/").partition("/")
        if not name.startswith("refs/"):
            return f"revision {name!r} is not in the repository{self._describe_clone()}"
        refs = self._ask(lambda: list(self._git.references))  # the repository may disappear at this moment
        names = sorted(ref.removeprefix(f"refs/{kind}/") for ref in refs if f"/{kind}/" in ref)
        noun = {"heads": "branch", "tags": "tag"}.get(kind, kind)
        near = find_closest_word(short, names)
        if near:
            return f"{noun} {short!r} is not there; did you mean {near!r}?"
        there = ", ".join(names[:5]) if names else f"no {noun} at all"
        return f"{noun} {short!r} is not there; the repository has {there}"

    def _revision(self, ref: str, target: str) -> Revision:
        git_object = self._ask(lambda: self._git[target])
        try:
            commit = git_object.peel(pygit2.Commit)
        except _GIT_FAULTS:
            raise SourceNotFound(f"source {self.settings.name}: {ref} is not a commit") from None
        tree = self._descend(bytes(commit.tree_id.raw), ref)
        subject = commit.raw_message.decode("utf-8", "replace").strip().partition("\n")[0]
        author = commit.author.raw_name.decode("utf-8", "replace")
        return Revision(
            source=self.settings.name,
            ref=ref,
            commit=str(commit.id),
            tree=tree.hex(),
            author=replace_unsafe(author),
            subject=replace_unsafe(subject),
            time=commit.commit_time,
        )

    def _descend(self, tree: bytes, ref: str) -> bytes:
        for name in self.settings.path.split("/"):
            if name in ("", "."):
                continue
            entry = parse_tree(self._trees.content(tree)).get(name.encode() + b"/")
            if entry is None:
                raise SourceNotFound(
                    f"source {self.settings.name}: {ref} has no directory {self.settings.path!r}; "
                    "check the path of the source in the settings"
                )
            tree = entry.id
        return tree

    def find_settings_file(self, revision: Revision) -> str:
        """The blob of the settings that ``revision`` has itself; "" for none. Raises SourceError for a link.

        Those at the path of the source count before those at the root of the repository.
        """
        blob = self._find_root_file(revision.tree, REPOSITORY_FILE)
        if blob or self.settings.path.strip("/.") == "":
            return blob
        root = self._ask(lambda: self._git[revision.commit].peel(pygit2.Commit).tree_id)
        return self._find_root_file(str(root), REPOSITORY_FILE)

    def _find_root_file(self, tree: str, name: str) -> str:
        """The blob of the file ``name`` at the top of ``tree``, "" for none. Raises SourceError for a link."""
        content = self._trees.content(_decode_tree_id(tree))
        entry = parse_tree(content).get(name.encode()) if name.encode() in content else None
        if entry is None:
            return ""
        if entry.symlink or entry.submodule:
            raise SourceError(f"source {self.settings.name}: {name} must be a file of its own, not a link")
        return entry.id.hex()

    def _ignore_file(self, blob: str) -> bytes:
        if self.size(blob) > MOST_IGNORE_BYTES:
            raise SourceError(f"source {self.settings.name}: {TOO_LARGE}")
        return self.read(blob)

    def _selection(self, tree: str) -> FileFilter:
        blob = self._find_root_file(tree, IGNORE_FILE)
        if blob not in self._selections:
            ignored = self._ignore_file(blob) if blob else b""
            self._selections = {blob: FileFilter(self.settings.include, self.settings.exclude, ignored)}
        return self._selections[blob]


def _make_signature_checker(settings: SourceSettings) -> Signatures | None:
    if settings.verify is None:
        return None
    from reconciler.source.signature import Signatures

    return Signatures(settings, settings.verify)


def _decode_tree_id(tree: str) -> bytes:
    return bytes.fromhex(tree)


def _shorten_ref_name(name: str) -> str:
    return name.removeprefix("refs/heads/").removeprefix("refs/tags/")
