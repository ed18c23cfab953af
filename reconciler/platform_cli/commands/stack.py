"""Compose projects: their manifests, applied and deleted as those of files are."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from reconciler.errors import UsageError
from reconciler.input_files import STDIN, read_files
from reconciler.platform_cli.commands.manifests import apply_documents, delete_documents, report, wanted_gvc
from reconciler.platform_cli.documents import Input
from reconciler.platform_cli.session import Session

if TYPE_CHECKING:
    from reconciler.convert.drafts import Draft
    from reconciler.model.finding import Finding

_MOST_LINES = 5
"""How many other lines a remark names; --verbose shows a remark for each."""
_NAMES = ("compose.yaml", "compose.yml", "docker-compose.yaml", "docker-compose.yml")
_OVERRIDES = ("compose.override.yaml", "compose.override.yml", "docker-compose.override.yaml",
              "docker-compose.override.yml")  # fmt: skip


def manifest(
    session: Session, file: tuple[str, ...], env_file: tuple[str, ...], compose_profile: tuple[str, ...],
    location: tuple[str, ...],
) -> None:  # fmt: skip
    """Print the manifests that a compose project becomes; remarks go to stderr."""
    drafts = _converted(session, file, env_file, compose_profile, location)
    session.output.manifests([draft.body for draft in drafts])


def deploy(
    session: Session, file: tuple[str, ...], env_file: tuple[str, ...], compose_profile: tuple[str, ...],
    location: tuple[str, ...], ready: bool | None,
) -> None:  # fmt: skip
    """Create and change the resources of a compose project."""
    drafts = _converted(session, file, env_file, compose_profile, location)
    apply_documents(session, _inputs(file, drafts), ready=bool(ready))


def remove(
    session: Session, file: tuple[str, ...], env_file: tuple[str, ...], compose_profile: tuple[str, ...],
    volumes: bool | None,
) -> None:  # fmt: skip
    """Delete the resources of a compose project; its GVC stays, and its volume sets do unless ``volumes``."""
    drafts = _converted(session, file, env_file, compose_profile, ())
    # What depends on others goes before them.
    deleted = [draft for draft in reversed(drafts) if volumes or draft.kind != "volumeset"]
    delete_documents(session, _inputs(file, deleted))


def _inputs(files: Sequence[str], drafts: Sequence[Draft]) -> list[Input]:
    return [Input(", ".join(files) or "the compose file", 1, draft.body) for draft in drafts]


def _converted(
    session: Session, files: Sequence[str], env_files: Sequence[str], profiles: Sequence[str], locations: Sequence[str]
) -> list[Draft]:
    """The manifests of the project. Raises UsageError and RefusedError."""
    from reconciler.convert.compose.convert import convert
    from reconciler.convert.compose.project import load
    from reconciler.convert.notes import findings

    paths = [*files] or _default_files(session.environ)
    directories = [path for path in paths if os.path.isdir(path)]
    if directories:
        raise UsageError(f"{directories[0]} is a directory; name a compose file in it")
    contents = {("stdin" if path == STDIN else path): read_files([path])["stdin" if path == STDIN else path]
                for path in paths}  # fmt: skip
    directory = os.path.dirname(next(iter(contents)))
    environ = _environ(session.environ, env_files, directory)
    active = profiles or [each for each in environ.get("COMPOSE_PROFILES", "").split(",") if each]
    project = load([*contents], environ, active, _reader(contents))
    gvc = wanted_gvc(session) or project.name or environ["COMPOSE_PROJECT_NAME"]
    converted = convert(project, gvc, locations)
    found = sorted([*project.faults, *findings(converted.remarks, project.contents)])
    report(session, found if session.verbose else fold(found))
    return converted.drafts


def fold(findings: Sequence[Finding]) -> list[Finding]:
    """``findings`` with those that say the same of a file in one, at the first place; it names the other lines."""
    alike: dict[Finding, list[int]] = {}
    for each in findings:
        alike.setdefault(replace(each, line=0, column=0), []).append(each.line)
    first = {replace(each, line=0, column=0): each for each in reversed(findings)}
    return sorted(
        replace(first[same], message=f"{same.message} ({_others(lines[1:])})") if lines[1:] else first[same]
        for same, lines in alike.items()
    )


def _others(lines: Sequence[int]) -> str:
    """``also in lines 5, 9, 12 and 40 more``."""
    different = sorted(set(lines))
    shown = ", ".join(map(str, different[:_MOST_LINES]))
    more = f" and {len(different) - _MOST_LINES} more" if len(different) > _MOST_LINES else ""
    return f"also in line{'s' if different[1:] else ''} {shown}{more}"


def _default_files(environ: Mapping[str, str]) -> list[str]:
    """The files that compose reads if it is named none. Raises UsageError if there are none."""
    if named := environ.get("COMPOSE_FILE"):
        return named.split(environ.get("COMPOSE_PATH_SEPARATOR") or os.pathsep)
    found = [next((name for name in names if os.path.isfile(name)), "") for names in (_NAMES, _OVERRIDES)]
    if not found[0]:
        raise UsageError(f"this directory has no {', '.join(_NAMES)}; name the file: --file FILE")
    return [name for name in found if name]


def _environ(environ: Mapping[str, str], env_files: Sequence[str], directory: str) -> dict[str, str]:
    """The variables of the project: those of the caller, else of ``env_files``, else of .env. Raises UsageError."""
    from reconciler.convert.compose.dotenv import EnvFileError, parse_env_file

    default = os.path.join(directory, ".env")
    named = [*env_files] or ([default] if os.path.isfile(default) else [])
    found: dict[str, str] = {}
    for path in named:
        try:
            found |= parse_env_file(read_files([path])[path], {**found, **environ})
        except EnvFileError as error:
            raise UsageError(f"{path}: {error}") from None
    name = os.path.basename(os.path.abspath(directory or "."))
    return {"COMPOSE_PROJECT_NAME": name, **found, **environ}


def _reader(contents: Mapping[str, bytes]) -> Callable[[str], bytes]:
    """Reads the files that a project names; ``contents`` are those that are read already."""
    from reconciler.convert.compose.project import UnreadableFileError
    from reconciler.documents.limits import read_within

    def read_file(path: str) -> bytes:
        if path in contents:
            return contents[path]
        place = os.path.expanduser(path)
        try:
            # A pipe has no end before its writer closes it.
            if not stat.S_ISREG(os.stat(place).st_mode):
                raise UnreadableFileError("it is no regular file")
            return read_within(place)
        except OSError as error:
            raise UnreadableFileError((error.strerror or "it cannot be read").lower()) from None
        except (UsageError, ValueError):
            raise UnreadableFileError("it is too large, or its name is none") from None

    return read_file
