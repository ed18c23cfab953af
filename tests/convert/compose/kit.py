"""Compose projects whose files are texts by path."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from reconciler.convert.budget import Budget
from reconciler.convert.compose.project import Project, load_project
from reconciler.errors import UnreadableFileError


def project(
    files: Mapping[str, str | bytes],
    *paths: str,
    environ: Mapping[str, str] | None = None,
    profiles: Collection[str] = (),
    budget: Budget | None = None,
) -> Project:
    """The project of ``paths``, else of all ``files`` in their order."""

    def read_file(path: str) -> bytes:
        if path not in files:
            raise UnreadableFileError("it does not exist")
        content = files[path]
        return content if isinstance(content, bytes) else content.encode()

    return load_project(paths or [*files], environ or {}, profiles, read_file, budget)


def remarks(found: Project) -> list[str]:
    """The messages of the notes and faults about a project."""
    return [each.message for each in found.notes] + [each.message for each in found.faults]
