"""Manifests as they lie there, a directory or one file, Git or not: read, checked, never applied."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple, NoReturn

import msgspec

from reconciler.decode.cache import Blobs, Cache
from reconciler.decode.decode import decode_all
from reconciler.documents.limits import read_within
from reconciler.errors import UsageError
from reconciler.manifests import reference_check
from reconciler.manifests.assembly import assemble
from reconciler.manifests.cross_findings import MOST_IN_FILE
from reconciler.manifests.decoder import Decoded
from reconciler.manifests.normalize import ManifestContext
from reconciler.manifests.rules.registry import CROSS_CHECKS
from reconciler.model.finding import Finding
from reconciler.model.revision import FileChange
from reconciler.pipeline.desired_bodies import BlobDecoder
from reconciler.pipeline.desired_view import desired_view
from reconciler.pipeline.externals import ExternalResources
from reconciler.records.store import Records
from reconciler.source.changes import TreeChanges, classify
from reconciler.source.file_filter import IGNORE_FILE, MOST_IGNORE_BYTES, FileFilter
from reconciler.source.file_reader import Read
from reconciler.source.tree_diff import Difference, Entry

WORKSPACE = "GITHUB_WORKSPACE"
"""Names the directory that paths in annotations begin at."""

_QUESTIONS = frozenset({"missing-reference", "gvc-missing", "gvc-ambiguous", "ignore-comment", "too-many-faults"})
"""Rules whose findings other manifests may answer, beside those that look at neighbours."""

_SECOND_PLACE = re.compile(r"(?<= at )\S+\.ya?ml(?=:[0-9]+$)")
"""Where a message names another place of the same manifests."""

_MOST_KEPT = 100
"""Files that are not read again where they are checked once more, among those around them."""

_FILE, _LINK = b"100644", b"120000"


class FolderCheck(msgspec.Struct, frozen=True):
    """What was looked at, and every fault in it in order of place.

    ``read`` gives the bytes of a file as findings name it; ``base`` is where their paths begin, from the root of the
    repository on, "" for the root itself; ``folder`` is that place on the disk, None for a revision.
    """

    findings: list[Finding]
    documents: int
    resources: int
    read: Read
    base: str = ""
    folder: Path | None = None

    def seen_from(self, here: Path) -> FolderCheck:
        """The same with paths that can be opened from ``here``: relative below it, else absolute."""
        if self.folder is None:
            return self
        start = _seen_from(self.folder, here)
        findings = [_moved(each, f"{start}{each.path}", partial(_place_from, here, start)) for each in self.findings]
        return msgspec.structs.replace(self, findings=findings, read=lambda path: self.read(path[len(start) :]))


class _Chosen(NamedTuple):
    """The argument: its directory, and the manifests in it that are asked about, by their paths in the directory."""

    folder: Path
    names: list[str]


def check_folder(
    path: Path, dialect: ManifestContext, around: ExternalResources, sources: Sequence[Path] = ()
) -> FolderCheck:
    """Check every manifest at ``path``, a directory or one file. Raises UsageError where there is nothing to read.

    They are read alone first. Where that leaves questions that neighbours may answer, everything up to the directory
    of a source (``sources``), a ``.reconcilerignore`` or the root of the repository is read too; the findings are
    still about ``path`` alone.
    """
    chosen, check = _chosen(path, sources), _Check(dialect, around)
    top = _top(chosen.folder, sources)
    if top == chosen.folder.absolute() and path.is_dir():
        return check.run(chosen.folder, chosen.names)[0]
    # Whether there are questions is seen at the first finding of each file.
    alone, _ = check.run(chosen.folder, chosen.names, most=1)
    if not any(map(_is_question, alone.findings)):
        return check.run(chosen.folder, chosen.names)[0] if alone.findings else alone
    inside = os.path.relpath(chosen.folder.absolute(), top)
    start = "" if inside == os.curdir else f"{inside}/"
    mine = {f"{start}{name}" for name in chosen.names}
    names = {*_manifests(top), *mine}
    if names == mine:
        return check.run(chosen.folder, chosen.names)[0]
    whole, resources = check.run(top, sorted(names), mine)
    turned = (_turned(each, mine) for each in whole.findings)
    findings = sorted(_inside(each, top, start) for each in turned if each.path.startswith(start))
    shown = {*chosen.names, *(each.path for each in alone.findings)}
    return msgspec.structs.replace(
        alone, findings=[each for each in findings if each.path in shown], resources=resources
    )


def _chosen(path: Path, sources: Sequence[Path]) -> _Chosen:
    if not path.is_dir():
        return _Chosen(path.parent, [path.name])
    names = sorted(_manifests(path))
    top = _top(path, sources)
    if top != path.absolute():
        # What the directory above leaves out is left out here, unless it is all that was asked for.
        selection, start = _selection(top), os.path.relpath(path.absolute(), top)
        names = [name for name in names if selection.matches(f"{start}/{name}")] or names
    if not names:
        raise UsageError(f"{path} holds no manifest: no file below it ends in .yaml or .yml")
    return _Chosen(path, names)


def _is_question(finding: Finding) -> bool:
    """Whether other manifests may be the answer to ``finding``."""
    return finding.rule in _QUESTIONS or finding.rule in CROSS_CHECKS


def _turned(finding: Finding, mine: Container[str]) -> Finding:
    """``finding``; where a file outside declares anew what one of ``mine`` does, the same at the place in ``mine``."""
    other = _SECOND_PLACE.search(finding.message) if finding.rule == "duplicate-resource" else None
    if other is None or finding.path in mine or other[0] not in mine:
        return finding
    line = int(finding.message[other.end() + 1 :])
    message = f"{finding.message[: other.start()]}{finding.path}:{finding.line}"
    return msgspec.structs.replace(finding, path=other[0], line=line, message=message)


def _inside(finding: Finding, top: Path, start: str) -> Finding:
    """``finding``, whose paths begin at ``top``, with paths that begin at ``start`` below it."""

    def shortened(path: str) -> str:
        return path[len(start) :] if path.startswith(start) else os.path.join(top, path)

    return _moved(finding, shortened(finding.path), shortened)


def _moved(finding: Finding, path: str, other: Callable[[str], str]) -> Finding:
    """``finding`` at ``path``, with ``other`` applied to the path of a second place in its message."""
    message = _SECOND_PLACE.sub(lambda found: other(found[0]), finding.message)
    return msgspec.structs.replace(finding, path=path, message=message)


def _seen_from(folder: Path, here: Path) -> str:
    """How paths in ``folder`` begin where somebody stands at ``here``."""
    there = os.path.abspath(folder)
    inside = os.path.relpath(there, here)
    if inside == os.curdir:
        return ""
    return f"{there.rstrip('/')}/" if inside.split(os.sep)[0] == os.pardir else f"{inside}/"


def _place_from(here: Path, start: str, path: str) -> str:
    """How the file ``path`` of a folder that is at ``start``, or anywhere if absolute, is opened from ``here``."""
    if not os.path.isabs(path):
        return start + path
    inside = os.path.relpath(path, here)
    return path if inside.split(os.sep)[0] == os.pardir else inside


class _Check:
    """Reads manifests and checks them, some of them twice: alone, and among those around them."""

    def __init__(self, dialect: ManifestContext, around: ExternalResources) -> None:
        self._dialect = dialect
        self._around = around
        self._decoded: dict[str, Decoded] = {}

    def run(
        self, base: Path, names: Sequence[str], only: Container[str] = (), most: int = MOST_IN_FILE
    ) -> tuple[FolderCheck, int]:
        """What is found in the files ``names`` below ``base``, and how many resources the files ``only`` hold.

        Between resources it finds at most so many errors of one file, and so many warnings.
        """
        blobs = Blobs(lambda name: _size(base, name), lambda name: _read(base, name))
        compared = _compared(base, names)
        records = Records.open(None)
        decode = partial(self._decode, base, blobs, len(names) <= _MOST_KEPT)
        delta = assemble("", compared.changes, decode, records.desired)
        if self._around.settings_unknown:
            # Some warnings that a comment is for come only where the settings are known.
            delta = msgspec.structs.replace(delta, unused_comments=[])
        view = desired_view("", records, self._around, BlobDecoder(blobs, self._dialect)).with_changes(delta)
        findings = sorted([*compared.findings, *delta.findings, *reference_check.check(delta, view, most)])
        mine, read = sum(resource.path in only for resource in delta.added.values()), partial(_named, base)
        return FolderCheck(findings, delta.documents, len(delta.added), read, _below_root(base), base), mine

    def _decode(
        self, base: Path, blobs: Blobs, keep: bool, wanted: Iterable[FileChange]
    ) -> Iterator[tuple[FileChange, Decoded]]:
        """What files say; with ``keep`` those that have not been read before are kept for the next time."""
        fresh: list[FileChange] = []
        for change in wanted:
            if (known := self._decoded.get(os.path.abspath(_path(base, change.after)))) is not None:
                yield change, known
            else:
                fresh.append(change)
        for change, said in decode_all(fresh, blobs, Cache(lambda _: {}, lambda _: None), self._dialect):
            if keep:
                self._decoded[os.path.abspath(_path(base, change.after))] = said
            yield change, said


def _compared(base: Path, names: Iterable[str]) -> TreeChanges:
    """The files as the difference to nothing, judged as those of a revision are; a blob's id is its path."""
    found = ((os.fsencode(name), _LINK if os.path.islink(os.path.join(base, name)) else _FILE) for name in names)
    differences = (Difference(raw, None, Entry(mode, raw)) for raw, mode in found)
    return classify(differences, lambda _: True)


def _size(base: Path, blob: str) -> int:
    try:
        return os.stat(_path(base, blob)).st_size
    except OSError as error:
        _unreadable(error)


def _read(base: Path, blob: str) -> bytes:
    try:
        return read_within(_path(base, blob))
    except OSError as error:
        _unreadable(error)


def _named(base: Path, name: str) -> bytes:
    """What is shown of a file beside its findings; nothing where it cannot be read."""
    try:
        return _read(base, os.fsencode(name).hex())
    except UsageError:
        return b""


def _path(base: Path, blob: str) -> str:
    # Not a Path: of 10,000 files, making them costs as much as reading the files.
    return os.path.join(base, os.fsdecode(bytes.fromhex(blob)))


def _root(here: Path) -> Path:
    """The work tree that the directory ``here`` is in, or itself."""
    return next((folder for folder in (here, *here.parents) if (folder / ".git").exists()), here)


def _top(folder: Path, sources: Sequence[Path]) -> Path:
    """Where the manifests begin among which those in ``folder`` stand; ``folder`` itself where nothing says it."""
    here = folder.absolute()
    known = [each for each in sources if here.is_relative_to(each)]
    if known:
        return max(known, key=lambda each: len(each.parts))
    marks = (".git", IGNORE_FILE)
    return next((each for each in (here, *here.parents) if any((each / mark).exists() for mark in marks)), here)


def _below_root(base: Path) -> str:
    """``base`` from the root of its repository on, which a forge's runner may know better than the disk."""
    here = base.resolve()
    root = Path(os.environ.get(WORKSPACE) or os.devnull).resolve()
    return os.path.relpath(here, root if here.is_relative_to(root) else _root(here))


def _manifests(base: Path) -> Iterator[str]:
    """Paths of manifests below ``base``, as Git would hold them: files and symbolic links."""
    selection = _selection(base)
    for folder, folders, files in os.walk(base, onerror=_unreadable):
        # A link to a directory is an entry of its own to Git, never a way down.
        links = [name for name in folders if os.path.islink(os.path.join(folder, name))]
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        inside = os.path.relpath(folder, base)
        for name in (*files, *links):
            path = name if inside == os.curdir else f"{inside}/{name}"
            if selection.matches(path) and _kept_by_git(os.path.join(folder, name)):
                yield path


def _selection(base: Path) -> FileFilter:
    """What ``base`` says of which files are manifests."""
    ignore = base / IGNORE_FILE
    return FileFilter(ignored=read_within(ignore, MOST_IGNORE_BYTES) if ignore.is_file() else b"")


def _unreadable(error: OSError) -> NoReturn:
    raise UsageError(f"{error.filename} cannot be read: {error.strerror}") from None


def _kept_by_git(path: str) -> bool:
    mode = os.lstat(path).st_mode
    return stat.S_ISREG(mode) or stat.S_ISLNK(mode)
