"""A directory of manifests as it lies there, Git or not: read, checked, never applied."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from reconciler.errors import UsageError
from reconciler.manifests.assembly import assemble
from reconciler.manifests.crossing import check
from reconciler.manifests.normal import Dialect
from reconciler.model.finding import Finding, Severity
from reconciler.model.revision import FileChange
from reconciler.pipeline.decoding import Blobs, Cache, decode_all
from reconciler.pipeline.view import Surroundings, View
from reconciler.records.store import Records
from reconciler.source.selection import IGNORE_FILE, Selection


class Checked(msgspec.Struct, frozen=True):
    """What was looked at, and every fault in it in order of place."""

    findings: list[Finding]
    documents: int
    resources: int


def check_folder(root: Path, dialect: Dialect, around: Surroundings) -> Checked:
    """Check every manifest at ``root`` (a directory, or one file). Raises UsageError where there is nothing to read."""
    base = root if root.is_dir() else root.parent
    names = sorted(_manifests(base) if root.is_dir() else [root.name])
    if not names:
        raise UsageError(f"{root} holds no manifest: no file below it ends in .yaml or .yml")
    blobs = Blobs(lambda name: (base / name).stat().st_size, lambda name: (base / name).read_bytes())
    records = Records.open(None)
    view = View("", records, blobs, dialect, around)
    changes = [FileChange(name, "", name) for name in names if not (base / name).is_symlink()]
    links = [_symlink(name) for name in names if (base / name).is_symlink()]
    cache = Cache(lambda _: {}, lambda _: None)
    delta = assemble("", changes, lambda wanted: decode_all(wanted, blobs, cache, dialect), records.desired)
    view.overlay(delta)
    findings = sorted([*links, *delta.findings, *check(delta, view)])
    return Checked(findings, delta.documents, len(delta.added))


def _manifests(base: Path) -> Iterator[str]:
    ignore = base / IGNORE_FILE
    selection = Selection(ignored=ignore.read_bytes() if ignore.is_file() else b"")
    for folder, folders, files in os.walk(base):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in files:
            path = os.path.relpath(os.path.join(folder, name), base)
            if selection.takes(path):
                yield path


def _symlink(name: str) -> Finding:
    return Finding(name, 1, 1, "symlink", Severity.ERROR, f"{name} is a symbolic link; links are not followed",
                   "put the manifest itself there")  # fmt: skip
