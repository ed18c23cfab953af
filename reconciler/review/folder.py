"""Manifests as they lie there, a directory or one file, Git or not: read, checked, never applied."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import NoReturn

import msgspec

from reconciler.decode.cache import Blobs, Cache
from reconciler.decode.decode import decode_all
from reconciler.documents.limits import read_within
from reconciler.errors import UsageError
from reconciler.manifests import reference_check
from reconciler.manifests.assembly import assemble
from reconciler.manifests.decoder import Decoded
from reconciler.manifests.normalize import ManifestContext
from reconciler.model.finding import Finding
from reconciler.model.revision import FileChange
from reconciler.pipeline.desired_view import DesiredStateView
from reconciler.pipeline.externals import ExternalResources
from reconciler.pipeline.file_reader import Read
from reconciler.records.store import Records
from reconciler.source.changes import TreeChanges, classify
from reconciler.source.file_filter import IGNORE_FILE, MOST_IGNORE_BYTES, FileFilter
from reconciler.source.tree_diff import Difference, Entry

WORKSPACE = "GITHUB_WORKSPACE"
"""Names the directory that paths in annotations begin at."""

_FILE, _LINK = b"100644", b"120000"


class FolderCheck(msgspec.Struct, frozen=True):
    """What was looked at, and every fault in it in order of place.

    ``read`` gives the bytes of a file as findings name it; ``base`` is where their paths begin, from the root of the
    repository on, "" for the root itself.
    """

    findings: list[Finding]
    documents: int
    resources: int
    read: Read
    base: str = ""


def check_folder(path: Path, dialect: ManifestContext, around: ExternalResources) -> FolderCheck:
    """Check every manifest at ``path``, a directory or one file. Raises UsageError where there is nothing to read.

    One file alone is read first; where that leaves questions, so is what lies around it, and what is told is still
    only about the file.
    """
    if path.is_dir():
        names = sorted(_manifests(path))
        if not names:
            raise UsageError(f"{path} holds no manifest: no file below it ends in .yaml or .yml")
        return _checked(path, names, dialect, around)[0]
    alone, _ = _checked(path.parent, [path.name], dialect, around)
    if not alone.findings:
        return alone
    root = _root(path.absolute().parent)
    name = os.path.relpath(path.absolute(), root)
    whole, mine = _checked(root, sorted({*_manifests(root), name}), dialect, around, name)
    findings = [msgspec.structs.replace(each, path=path.name) for each in whole.findings if each.path == name]
    return FolderCheck(findings, alone.documents, mine, alone.read, alone.base)


def _checked(
    base: Path, names: Iterable[str], dialect: ManifestContext, around: ExternalResources, only: str = ""
) -> tuple[FolderCheck, int]:
    """What is found below ``base``, and how many resources the file ``only`` holds."""
    blobs = Blobs(lambda name: _size(base, name), lambda name: _read(base, name))
    compared = _compared(base, names)
    records = Records.open(None)
    view = DesiredStateView("", records, blobs, dialect, around)
    cache = Cache(lambda _: {}, lambda _: None)

    def decode(wanted: Iterable[FileChange]) -> Iterator[tuple[FileChange, Decoded]]:
        return decode_all(list(wanted), blobs, cache, dialect)

    delta = assemble("", compared.changes, decode, records.desired)
    view.apply_change_set(delta)
    findings = sorted([*compared.findings, *delta.findings, *reference_check.check(delta, view)])
    mine = sum(resource.path == only for resource in delta.added.values())
    count, read = len(delta.added), partial(_named, base)
    return FolderCheck(findings, delta.documents, count, read, _below_root(base)), mine


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


def _below_root(base: Path) -> str:
    """``base`` from the root of its repository on, which a forge's runner may know better than the disk."""
    here = base.resolve()
    root = Path(os.environ.get(WORKSPACE) or os.devnull).resolve()
    return os.path.relpath(here, root if here.is_relative_to(root) else _root(here))


def _manifests(base: Path) -> Iterator[str]:
    """Paths of manifests below ``base``, as Git would hold them: files and symbolic links."""
    ignore = base / IGNORE_FILE
    selection = FileFilter(ignored=read_within(ignore, MOST_IGNORE_BYTES) if ignore.is_file() else b"")
    for folder, folders, files in os.walk(base, onerror=_unreadable):
        # A link to a directory is an entry of its own to Git, never a way down.
        links = [name for name in folders if os.path.islink(os.path.join(folder, name))]
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        inside = os.path.relpath(folder, base)
        for name in (*files, *links):
            path = name if inside == os.curdir else f"{inside}/{name}"
            if selection.matches(path) and _kept_by_git(os.path.join(folder, name)):
                yield path


def _unreadable(error: OSError) -> NoReturn:
    raise UsageError(f"{error.filename} cannot be read: {error.strerror}") from None


def _kept_by_git(path: str) -> bool:
    mode = os.lstat(path).st_mode
    return stat.S_ISREG(mode) or stat.S_ISLNK(mode)
