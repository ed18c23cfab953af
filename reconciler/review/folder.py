"""Checks manifests in a directory or one file, in Git or not, without applying them."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple, NoReturn

import msgspec

from reconciler.decode.cache import Blobs, Cache
from reconciler.decode.decode import decode_all
from reconciler.documents.json.recognition import is_json_manifest
from reconciler.documents.limits import LIMITS, read_within
from reconciler.errors import UsageError
from reconciler.manifests import reference_check
from reconciler.manifests.assembly import assemble_changes
from reconciler.manifests.cross_findings import MOST_IN_FILE
from reconciler.manifests.decoder import Decoded
from reconciler.manifests.normalize import ManifestContext
from reconciler.manifests.rules.registry import CROSS_CHECKS
from reconciler.model.finding import Finding
from reconciler.model.revision import FileChange, blob_id, blob_name, is_json
from reconciler.pipeline.desired_bodies import BlobDecoder
from reconciler.pipeline.desired_view import desired_view
from reconciler.pipeline.externals import ExternalResources
from reconciler.records.store import Records
from reconciler.source.changes import TreeChanges, classify_differences
from reconciler.source.file_filter import IGNORE_FILE, MOST_IGNORE_BYTES, REPOSITORY_FILE, FileFilter
from reconciler.source.file_reader import Read
from reconciler.source.repository_settings import ReadSettings, read_repository_settings
from reconciler.source.tree_diff import Difference, TreeEntry

WORKSPACE = "GITHUB_WORKSPACE"
"""The variable that names the root of paths in annotations."""

_QUESTIONS = frozenset({"missing-reference", "gvc-missing", "gvc-ambiguous", "ignore-comment", "too-many-faults"})
"""Rules whose findings other manifests may resolve, in addition to the cross checks."""

_SECOND_PLACE = re.compile(r"(?<= at )\S+\.(?:ya?ml|json)(?=:[0-9]+$)")
"""A second place in the same manifests, in a message."""

_MOST_CACHED = 100
"""The most files whose decoded content is reused in the second check, with the files around them."""

_FILE, _LINK = b"100644", b"120000"


class FolderCheck(msgspec.Struct, frozen=True):
    """The counts of what was checked, and all findings in order of place.

    ``read`` returns the bytes of a file by its path in findings; those paths begin at ``base``, which is relative to
    the root of the repository ("": the root). ``folder`` is that directory on the disk, None for a revision.
    """

    findings: list[Finding]
    documents: int
    resources: int
    read: Read
    base: str = ""
    folder: Path | None = None

    def seen_from(self, here: Path) -> FolderCheck:
        """Return the check with paths that can be opened from ``here``: relative below it, else absolute."""
        if self.folder is None:
            return self
        start = _seen_from(self.folder, here)
        findings = [
            _move_finding(finding, f"{start}{finding.path}", partial(_place_from, here, start))
            for finding in self.findings
        ]
        return msgspec.structs.replace(self, findings=findings, read=lambda path: self.read(path[len(start) :]))


class _Chosen(NamedTuple):
    """The directory to check, and the paths of the requested manifests in it."""

    folder: Path
    names: list[str]


def check_folder(
    path: Path, dialect: ManifestContext, around: ExternalResources, sources: Sequence[Path] = (), gvc: str = ""
) -> FolderCheck:
    """Check every manifest at ``path``, a directory or one file. Raises UsageError if there is nothing to read.

    They are checked alone first. If other manifests may resolve a finding, everything up to the directory of a source
    (``sources``), a ``.reconcilerignore``, a ``.reconciler.yaml`` or the root of the repository is read too; the
    findings still cover ``path`` alone. ``gvc`` is that of manifests for which no directory has just one. The
    ``.reconciler.yaml`` there counts where ``dialect`` and ``gvc`` leave something open.
    """
    if path.name == REPOSITORY_FILE:
        return _check_settings_alone(path, _read_settings(path.absolute().parent, dialect, gvc))
    chosen = _select_files(path, sources)
    top = _find_manifest_root(chosen.folder, sources)
    declared = _read_settings(top, dialect, gvc)
    known = dialect if dialect.org_known or not declared.settings.org else _with_org(dialect, declared.settings.org)
    claims = msgspec.structs.replace(around, claimed=declared.settings.external)
    check = _Check(known, claims, gvc or declared.settings.gvc)
    if top == chosen.folder.absolute() and path.is_dir():
        found = check.run(chosen.folder, chosen.names)[0]
        own = [Finding.at(REPOSITORY_FILE, fault) for fault in declared.faults]
        return msgspec.structs.replace(found, findings=sorted([*own, *found.findings]))
    # The first finding of each file shows whether other manifests may resolve it.
    alone, _ = check.run(chosen.folder, chosen.names, most=1)
    if not any(map(_is_question, alone.findings)):
        return check.run(chosen.folder, chosen.names)[0] if alone.findings else alone
    inside = os.path.relpath(chosen.folder.absolute(), top)
    start = "" if inside == os.curdir else f"{inside}/"
    mine = {f"{start}{name}" for name in chosen.names}
    names = {*list_manifest_paths(top), *mine}
    if names == mine:
        return check.run(chosen.folder, chosen.names)[0]
    whole, resources = check.run(top, sorted(names), mine)
    turned = (_move_duplicate(finding, mine) for finding in whole.findings)
    findings = sorted(_relative_to(finding, top, start) for finding in turned if finding.path.startswith(start))
    shown = {*chosen.names, *(finding.path for finding in alone.findings)}
    return msgspec.structs.replace(
        alone, findings=[finding for finding in findings if finding.path in shown], resources=resources
    )


def _with_org(dialect: ManifestContext, org: str) -> ManifestContext:
    return msgspec.structs.replace(dialect, org=org, org_known=True)


def _read_settings(top: Path, dialect: ManifestContext, gvc: str) -> ReadSettings:
    """What the file for that in ``top`` says, which counts where ``dialect`` and ``gvc`` leave something open."""
    file = top / REPOSITORY_FILE
    if not file.is_file():
        return ReadSettings()
    if file.is_symlink():
        raise UsageError(f"{file} must be a file of its own, not a link")
    raw = _read_named_file(top, REPOSITORY_FILE)
    return read_repository_settings(raw, dialect.org if dialect.org_known else "", gvc)


def _check_settings_alone(path: Path, declared: ReadSettings) -> FolderCheck:
    findings = [Finding.at(path.name, fault) for fault in declared.faults]
    return FolderCheck(findings, 1, 0, partial(_read_named_file, path.parent), _below_root(path.parent), path.parent)


def _select_files(path: Path, sources: Sequence[Path]) -> _Chosen:
    if not path.is_dir():
        if not _holds_manifest(path.parent, path.name):
            raise UsageError(
                f"{path} is no manifest: in JSON that is an object with `kind`, one of the platform's, and `name`, or "
                "a list of such objects"
            )
        return _Chosen(path.parent, [path.name])
    names = sorted(list_manifest_paths(path))
    top = _find_manifest_root(path, sources)
    if top != path.absolute():
        # Files that the directory above ignores are ignored here, unless no others are requested.
        selection, start = _load_file_filter(top), os.path.relpath(path.absolute(), top)
        names = [name for name in names if selection.matches(f"{start}/{name}")] or names
    if not any(_holds_manifest(path, name) for name in sorted(names, key=is_json)):
        raise UsageError(
            f"{path} has no manifest: no file below it ends in .yaml or .yml, and none in .json has kind and name"
        )
    return _Chosen(path, names)


def _holds_manifest(base: Path, name: str) -> bool:
    """Whether the file ``name`` is a manifest as far as its name, or the content of JSON, decides."""
    if not is_json(name):
        return True
    blob = blob_name(name, os.fsencode(name).hex())
    return _get_blob_size(base, blob) <= LIMITS.file_bytes and is_json_manifest(_read_blob(base, blob))


def _is_question(finding: Finding) -> bool:
    """Whether other manifests may resolve ``finding``."""
    return finding.rule in _QUESTIONS or finding.rule in CROSS_CHECKS


def _move_duplicate(finding: Finding, mine: Container[str]) -> Finding:
    """``finding``; a duplicate that an outside file declares is moved to its place in ``mine``."""
    other = _SECOND_PLACE.search(finding.message) if finding.rule == "duplicate-resource" else None
    if other is None or finding.path in mine or other[0] not in mine:
        return finding
    line = int(finding.message[other.end() + 1 :])
    message = f"{finding.message[: other.start()]}{finding.path}:{finding.line}"
    return msgspec.structs.replace(finding, path=other[0], line=line, message=message)


def _relative_to(finding: Finding, top: Path, start: str) -> Finding:
    """``finding`` with paths relative to ``start`` instead of ``top``."""

    def shorten(path: str) -> str:
        return path[len(start) :] if path.startswith(start) else os.path.join(top, path)

    return _move_finding(finding, shorten(finding.path), shorten)


def _move_finding(finding: Finding, path: str, other: Callable[[str], str]) -> Finding:
    """``finding`` at ``path``, with ``other`` applied to the path of a second place in its message."""
    message = _SECOND_PLACE.sub(lambda match: other(match[0]), finding.message)
    return msgspec.structs.replace(finding, path=path, message=message)


def _seen_from(folder: Path, here: Path) -> str:
    """The prefix of paths in ``folder``, as seen from ``here``."""
    there = os.path.abspath(folder)
    inside = os.path.relpath(there, here)
    if inside == os.curdir:
        return ""
    return f"{there.rstrip('/')}/" if inside.split(os.sep)[0] == os.pardir else f"{inside}/"


def _place_from(here: Path, start: str, path: str) -> str:
    """The path, as seen from ``here``, of the file ``path`` in the folder ``start``; ``path`` may be absolute."""
    if not os.path.isabs(path):
        return start + path
    inside = os.path.relpath(path, here)
    return path if inside.split(os.sep)[0] == os.pardir else inside


class _Check:
    """Reads and checks manifests, some of them twice: alone, and with the files around them."""

    def __init__(self, dialect: ManifestContext, around: ExternalResources, gvc: str) -> None:
        self._gvc = gvc
        self._dialect = dialect
        self._around = around
        self._decoded: dict[str, Decoded] = {}

    def run(
        self, base: Path, names: Sequence[str], only: Container[str] = (), most: int = MOST_IN_FILE
    ) -> tuple[FolderCheck, int]:
        """Check the files ``names`` below ``base``; returns the check and the count of resources in the files ``only``.

        Checks between resources report at most ``most`` errors, and ``most`` warnings, of one file.
        """
        blobs = Blobs(lambda name: _get_blob_size(base, name), lambda name: _read_blob(base, name))
        compared = _make_tree_changes(base, names)
        records = Records.open(None)
        decode = partial(self._decode, base, blobs, len(names) <= _MOST_CACHED)
        delta = assemble_changes("", compared.changes, decode, records.desired, self._gvc)
        if self._around.settings_unknown:
            # Some warnings that comments silence appear only if the settings are known.
            delta = msgspec.structs.replace(delta, unused_comments=[])
        view = desired_view("", records, self._around, BlobDecoder(blobs, self._dialect)).with_changes(delta)
        findings = sorted([*compared.findings, *delta.findings, *reference_check.check_references(delta, view, most)])
        mine, read = sum(resource.path in only for resource in delta.added.values()), partial(_read_named_file, base)
        return FolderCheck(findings, delta.documents, len(delta.added), read, _below_root(base), base), mine

    def _decode(
        self, base: Path, blobs: Blobs, keep: bool, changes: Iterable[FileChange]
    ) -> Iterator[tuple[FileChange, Decoded]]:
        """Decode files; with ``keep``, cache them for the next check."""
        fresh: list[FileChange] = []
        for change in changes:
            if self._decoded and (decoded := self._decoded.get(os.path.abspath(_get_blob_path(base, change.after)))):
                yield change, decoded
            else:
                fresh.append(change)
        for change, decoded in decode_all(fresh, blobs, Cache(lambda _: {}, lambda _: None), self._dialect):
            if keep:
                self._decoded[os.path.abspath(_get_blob_path(base, change.after))] = decoded
            yield change, decoded


def _make_tree_changes(base: Path, names: Iterable[str]) -> TreeChanges:
    """The tree changes of a revision that adds the files; the id of a blob is its path."""
    files = ((os.fsencode(name), _LINK if os.path.islink(os.path.join(base, name)) else _FILE) for name in names)
    differences = (Difference(raw, None, TreeEntry(mode, raw)) for raw, mode in files)
    return classify_differences(differences, lambda _: True)


def _get_blob_size(base: Path, blob: str) -> int:
    try:
        return os.stat(_get_blob_path(base, blob), follow_symlinks=not is_json(blob)).st_size
    except OSError as error:
        _raise_read_error(error)


def _read_blob(base: Path, blob: str) -> bytes:
    path = _get_blob_path(base, blob)
    try:
        if is_json(blob) and os.path.islink(path):
            return os.fsencode(os.readlink(path))  # as in a commit, where it is no manifest
        return read_within(path)
    except OSError as error:
        _raise_read_error(error)


def _read_named_file(base: Path, name: str) -> bytes:
    """The content of a file for excerpts; empty if it cannot be read."""
    try:
        return _read_blob(base, os.fsencode(name).hex())
    except UsageError:
        return b""


def _get_blob_path(base: Path, blob: str) -> str:
    # Not a Path: for 10,000 files, creating them costs as much as reading the files.
    return os.path.join(base, os.fsdecode(bytes.fromhex(blob_id(blob))))


def _find_work_tree(here: Path) -> Path:
    """The work tree of the directory ``here``, or ``here`` itself."""
    return next((folder for folder in (here, *here.parents) if (folder / ".git").exists()), here)


def _find_manifest_root(folder: Path, sources: Sequence[Path]) -> Path:
    """The root directory of the manifests around ``folder``; ``folder`` itself if nothing marks one."""
    here = folder.absolute()
    paths = [source for source in sources if here.is_relative_to(source)]
    if paths:
        return max(paths, key=lambda root: len(root.parts))
    marks = (".git", IGNORE_FILE, REPOSITORY_FILE)
    return next((path for path in (here, *here.parents) if any((path / mark).exists() for mark in marks)), here)


def _below_root(base: Path) -> str:
    """``base`` relative to the root of its repository, which the variable of a forge's runner may name."""
    here = base.resolve()
    root = Path(os.environ.get(WORKSPACE) or os.devnull).resolve()
    return os.path.relpath(here, root if here.is_relative_to(root) else _find_work_tree(here))


def list_manifest_paths(base: Path) -> Iterator[str]:
    """Paths of files with the names of manifests below ``base``, as Git would hold them: files and symbolic links."""
    selection = _load_file_filter(base)
    for folder, folders, files in os.walk(base, onerror=_raise_read_error):
        # For Git, a link to a directory is an entry of its own, not followed.
        links = [name for name in folders if os.path.islink(os.path.join(folder, name))]
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        inside = os.path.relpath(folder, base)
        for name in (*files, *links):
            path = name if inside == os.curdir else f"{inside}/{name}"
            if selection.matches(path) and _is_file_or_link(os.path.join(folder, name)):
                yield path


def _load_file_filter(base: Path) -> FileFilter:
    """The file filter of ``base``, from its ignore file."""
    ignore = base / IGNORE_FILE
    return FileFilter(ignored=read_within(ignore, MOST_IGNORE_BYTES) if ignore.is_file() else b"")


def _raise_read_error(error: OSError) -> NoReturn:
    raise UsageError(f"{error.filename} cannot be read: {error.strerror}") from None


def _is_file_or_link(path: str) -> bool:
    # Neither raises an error if the file is removed meanwhile.
    return os.path.isfile(path) or os.path.islink(path)
