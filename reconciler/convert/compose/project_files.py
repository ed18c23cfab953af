"""Compose files among the files of people: those of one directory are one project, as compose itself reads them."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import NamedTuple

from reconciler.convert.compose.convert import convert_project
from reconciler.convert.compose.dotenv import EnvFileError, parse_env_file
from reconciler.convert.compose.project import FileReader, load_project
from reconciler.convert.drafts import Draft
from reconciler.convert.names import make_valid_name
from reconciler.convert.notes import make_findings
from reconciler.errors import MissingFileError, UnreadableFileError, UsageError
from reconciler.model.finding import Finding

DEFAULT_NAMES = ("compose.yaml", "compose.yml", "docker-compose.yaml", "docker-compose.yml")
"""What compose reads in a directory where it is named no file: the first of these."""
OVERRIDES = tuple(name.replace("compose.y", "compose.override.y") for name in DEFAULT_NAMES)
"""And over it the first of these."""
_ENV_FILE = ".env"


class ConvertedProject(NamedTuple):
    """The manifests of a project, what was found, and the files that were read."""

    drafts: list[Draft]
    findings: list[Finding]
    contents: Mapping[str, bytes]


def convert_compose_files(
    contents: Mapping[str, bytes],
    gvc: str,
    open_project: Callable[[str], FileReader],
    environ: Mapping[str, str],
    name_directory: Callable[[str], str],
) -> Iterator[ConvertedProject]:
    """The project of each directory of ``contents``, in the GVC ``gvc``, else in that of the project's name.

    ``environ`` are the variables of the caller. Raises UsageError for an unreadable file of variables.
    """
    for folder in dict.fromkeys(map(posixpath.dirname, contents)):
        paths = sorted((path for path in contents if posixpath.dirname(path) == folder), key=_rank_name)
        project_reader = open_project(folder)

        def read_file(path: str, reader: FileReader = project_reader) -> bytes:
            return contents[path] if path in contents else reader(path)

        variables = _read_variables(folder, read_file, environ)
        variables = {"COMPOSE_PROJECT_NAME": name_directory(folder), **variables, **environ}
        profiles = [text for text in variables.get("COMPOSE_PROFILES", "").split(",") if text]
        project = load_project(paths, variables, profiles, read_file)
        name = gvc or project.name or variables["COMPOSE_PROJECT_NAME"]
        converted = convert_project(project, make_valid_name(name))
        findings = [*project.faults, *make_findings(converted.remarks, project.contents)]
        yield ConvertedProject(converted.drafts, findings, project.contents)


def list_variants(paths: Collection[str]) -> set[str]:
    """The compose files of ``paths`` that compose does not read by itself, beside one that it does."""
    standard = {posixpath.dirname(path) for path in paths if posixpath.basename(path) in DEFAULT_NAMES}
    usual = {*DEFAULT_NAMES, *OVERRIDES}
    return {path for path in paths if posixpath.dirname(path) in standard and posixpath.basename(path) not in usual}


def _rank_name(path: str) -> int:
    """Where a file is among those of its directory: compose reads an override after what it overrides."""
    name = posixpath.basename(path)
    return 0 if name in DEFAULT_NAMES else 1 if name in OVERRIDES else 2


def _read_variables(folder: str, read_file: FileReader, environ: Mapping[str, str]) -> dict[str, str]:
    """The variables in the file `.env` of ``folder``; none where it has none."""
    path = posixpath.join(folder, _ENV_FILE)
    try:
        return parse_env_file(read_file(path), environ)
    except MissingFileError:
        return {}
    except UnreadableFileError as error:
        raise UsageError(f"{path} cannot be read: {error}; {error.suggestion}".rstrip("; ")) from None
    except EnvFileError as error:
        raise UsageError(f"{path}: {error}") from None
