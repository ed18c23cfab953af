"""Interprets the differences of two trees: files to read, and entries that only look like manifests."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from reconciler.model.finding import Finding, Severity
from reconciler.model.revision import FileChange, blob_name, is_json
from reconciler.model.rule import error_rule
from reconciler.printable import replace_unsafe
from reconciler.source.file_filter import IGNORE_FILE
from reconciler.source.tree_diff import Difference, TreeEntry

RULES = (
    error_rule(
        "symlink",
        "A manifest is a regular file, not a symbolic link.",
        "A link can lead to a file outside the repository, which the commit does not contain. Commit the file itself, "
        "or list the link in .reconcilerignore.",
        "docs/manifests.md#files",
    ),
    error_rule(
        "submodule",
        "The directory of manifests contains no submodule.",
        "Its content is not in this repository, so it can be neither read nor reviewed here. Make it a separate "
        "source, or list it in .reconcilerignore.",
        "docs/manifests.md#files",
    ),
    error_rule(
        "file-name",
        "The path of a manifest is printable UTF-8 text.",
        "Control characters in a path break lines and terminals, and a path that is not text cannot be shown.",
        "docs/manifests.md#files",
    ),
)
"""Rules for tree entries that cannot be read as manifests."""


class TreeChanges(msgspec.Struct, frozen=True):
    """The differences between two trees, in path order; paths are relative to the source's path.

    ``findings`` are entries of the newer tree that cannot be manifests although they have the path of one.
    ``resolved_findings`` are those of the older tree, in the differing parts, that the newer tree no longer has. Equal
    parts are not read, so a caller with open findings updates them: ``(open - resolved_findings) | findings``.
    """

    changes: list[FileChange]
    findings: list[Finding]
    resolved_findings: list[Finding]


class _Side(msgspec.Struct, frozen=True, gc=False):
    path: str = ""
    blob: str = ""
    finding: Finding | None = None


_NOTHING = _Side()
"""No entry, or one that is not read."""


def classify_differences(differences: Iterable[Difference], takes: Callable[[str], bool]) -> TreeChanges:
    """Convert ``differences`` into changed manifests and findings; ``takes`` decides which paths are read."""
    changes: list[FileChange] = []
    findings: list[Finding] = []
    resolved: list[Finding] = []
    for difference in differences:
        old = _make_side(difference.path, difference.before, takes)
        new = _make_side(difference.path, difference.after, takes)
        if old.blob != new.blob:
            changes.append(FileChange(new.path or old.path, old.blob, new.blob))
        if old.finding != new.finding:
            findings.extend([new.finding] if new.finding else [])
            resolved.extend([old.finding] if old.finding else [])
    return TreeChanges(changes, findings, resolved)


def blob_to_read(difference: Difference, takes: Callable[[str], bool]) -> str:
    """The blob of the newer side of ``difference``, "" if it is no file to read."""
    return _make_side(difference.path, difference.after, takes).blob


def _make_side(raw: bytes, entry: TreeEntry | None, takes: Callable[[str], bool]) -> _Side:
    if entry is None:
        return _NOTHING
    name = raw.decode("utf-8", "backslashreplace")
    if not takes(f"{name}/x.yaml" if entry.submodule else name):
        return _NOTHING
    path = replace_unsafe(name, lambda sign: ascii(sign[0])[1:-1])
    fault = _find_oddity(entry, odd_name=path.encode() != raw)
    if is_json(name) and not entry.submodule:
        # Most are no manifests, so none of them is reported. The content of a link is its target, which is none either.
        return _Side(path, blob_name(path, entry.id.hex())) if fault is None or entry.symlink else _NOTHING
    if fault is None:
        return _Side(path, entry.id.hex())
    suggestion = f"{fault.remedy}, or name it in {IGNORE_FILE}"
    return _Side(path, "", Finding(path, 0, 0, fault.rule, Severity.ERROR, fault.message, suggestion))


class _Oddity(msgspec.Struct, frozen=True):
    rule: str
    message: str
    remedy: str


def _find_oddity(entry: TreeEntry, *, odd_name: bool) -> _Oddity | None:
    """Why an entry must not be read as a manifest; None for a plain file."""
    if entry.symlink:
        return _Oddity("symlink", "this is a symbolic link, and links are not followed", "commit the file itself here")
    if entry.submodule:
        return _Oddity("submodule", "this is a submodule, and submodules are not read", "make it a source of its own")
    if odd_name:
        return _Oddity("file-name", "the name has control characters or is not UTF-8", "rename the file")
    return None
