"""Compose projects: their manifests, applied and deleted as those of files are."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from reconciler.errors import UnreadableFileError, UsageError
from reconciler.input_files import STDIN, ProjectFiles, read_files
from reconciler.platform_cli.commands.manifests import (
    apply_documents,
    delete_documents,
    parse_wait,
    report_findings,
    wanted_gvc,
)
from reconciler.platform_cli.documents import Input
from reconciler.platform_cli.session import Session
from reconciler.printable import escape_text

if TYPE_CHECKING:
    from reconciler.convert.drafts import Draft
    from reconciler.model.finding import Finding

_MOST_LINES = 5
"""How many other lines a remark names; --verbose shows a remark for each."""
_NAMES = ("compose.yaml", "compose.yml", "docker-compose.yaml", "docker-compose.yml")
_OVERRIDES = (
    "compose.override.yaml",
    "compose.override.yml",
    "docker-compose.override.yaml",
    "docker-compose.override.yml",
)


class ProjectOptions(msgspec.Struct, frozen=True):
    """The options that choose a project and how it is read."""

    file: tuple[str, ...]
    env_file: tuple[str, ...]
    compose_profile: tuple[str, ...]
    allow_outside: bool | None


def manifest(session: Session, location: tuple[str, ...], **options: Any) -> None:
    """Print the manifests that a compose project becomes; remarks go to stderr."""
    drafts = _load_project_drafts(session, location, ProjectOptions(**options))
    session.output.manifests([draft.body for draft in drafts])


def deploy(session: Session, location: tuple[str, ...], ready: bool | None, timeout: str, **options: Any) -> None:
    """Create and change the resources of a compose project."""
    seconds = parse_wait(ready, timeout)
    drafts = _load_project_drafts(session, location, ProjectOptions(**options))
    apply_documents(session, _make_inputs(options["file"], drafts), wait=seconds)


def remove(session: Session, volumes: bool | None, **options: Any) -> None:
    """Delete the resources of a compose project; its GVC stays, and its volume sets do unless ``volumes``."""
    drafts = _load_project_drafts(session, (), ProjectOptions(**options))
    # What depends on others goes before them.
    deleted = [draft for draft in reversed(drafts) if volumes or draft.kind != "volumeset"]
    delete_documents(session, _make_inputs(options["file"], deleted))


def _make_inputs(files: Sequence[str], drafts: Sequence[Draft]) -> list[Input]:
    return [Input(", ".join(files) or "the compose file", 1, draft.body) for draft in drafts]


def _load_project_drafts(session: Session, locations: Sequence[str], options: ProjectOptions) -> list[Draft]:
    """The manifests of the project. Raises UsageError and RefusedError."""
    from reconciler.convert.checking import check_drafts, schema_problems
    from reconciler.convert.compose.convert import convert_project
    from reconciler.convert.compose.project import load_project
    from reconciler.convert.notes import make_findings
    from reconciler.documents.recognition import PROJECTS, Recogniser
    from reconciler.model.finding import has_errors

    paths = [*options.file] or _default_files(session.environ)
    directories = [path for path in paths if os.path.isdir(path)]
    if directories:
        raise UsageError(f"{directories[0]} is a directory; name a compose file in it")
    directory = os.path.dirname(paths[0]) if paths[0] != STDIN else ""
    files = ProjectFiles(directory, allow_outside=bool(options.allow_outside))
    is_named = bool(options.file or session.environ.get("COMPOSE_FILE"))
    contents = {("stdin" if path == STDIN else path): _read_file(path, files, is_named=is_named) for path in paths}
    Recogniser(PROJECTS, "platform").refuse_others(contents)
    environ = _build_project_environment(session.environ, options.env_file, directory, files)
    active = options.compose_profile or [text for text in environ.get("COMPOSE_PROFILES", "").split(",") if text]
    files.contents = contents
    project = load_project([*contents], environ, active, files.read)
    gvc = wanted_gvc(session) or project.name or environ["COMPOSE_PROJECT_NAME"]
    converted = convert_project(project, gvc, locations)
    if files.outside:
        session.output.note(
            f"outside of the directory of the project, and not read without --allow-outside: "
            f"{', '.join(map(escape_text, dict.fromkeys(files.outside)))}"
        )
    problems = sorted([*project.faults, *make_findings(converted.remarks, project.contents)])
    if not has_errors(problems):
        unfit = check_drafts(converted.drafts, next(iter(contents)), schema_problems)
        problems = sorted([*problems, *make_findings(unfit, project.contents)])
    report_findings(session, problems if session.verbose else fold_findings(problems))
    return converted.drafts


def fold_findings(findings: Sequence[Finding]) -> list[Finding]:
    """``findings`` with those that say the same of a file in one, at the first place; it names the other lines."""
    alike: dict[Finding, list[int]] = {}
    for entry in findings:
        alike.setdefault(msgspec.structs.replace(entry, line=0, column=0), []).append(entry.line)
    first = {msgspec.structs.replace(finding, line=0, column=0): finding for finding in reversed(findings)}
    return sorted(
        msgspec.structs.replace(first[same], message=f"{same.message} ({_format_other_lines(lines[1:])})")
        if lines[1:]
        else first[same]
        for same, lines in alike.items()
    )


def _format_other_lines(lines: Sequence[int]) -> str:
    """``also in lines 5, 9, 12 and 40 more``."""
    different = sorted(set(lines))
    shown = ", ".join(map(str, different[:_MOST_LINES]))
    more = f" and {len(different) - _MOST_LINES} more" if len(different) > _MOST_LINES else ""
    return f"also in line{'s' if different[1:] else ''} {shown}{more}"


def _read_file(path: str, files: ProjectFiles, *, is_named: bool) -> bytes:
    """A file that the caller names, wherever it is, or that was found in the directory. Raises UsageError."""
    if is_named:
        return next(iter(read_files([path]).values()))
    return _read_found(path, files)


def _read_found(path: str, files: ProjectFiles) -> bytes:
    """A file that was found in the directory of the project: it may be a link to any other. Raises UsageError."""
    try:
        return files.read(path)
    except UnreadableFileError as error:
        advice = f"; {error.suggestion}" if error.suggestion else ""
        raise UsageError(f"{path} cannot be read: {error}{advice}") from None


def _default_files(environ: Mapping[str, str]) -> list[str]:
    """The files that compose reads if it is named none. Raises UsageError if there are none."""
    if named := environ.get("COMPOSE_FILE"):
        return named.split(environ.get("COMPOSE_PATH_SEPARATOR") or os.pathsep)
    texts = [next((name for name in names if os.path.isfile(name)), "") for names in (_NAMES, _OVERRIDES)]
    if not texts[0]:
        raise UsageError(f"this directory has no {', '.join(_NAMES)}; name the file: --file FILE")
    return [name for name in texts if name]


def _build_project_environment(
    environ: Mapping[str, str], env_files: Sequence[str], directory: str, files: ProjectFiles
) -> dict[str, str]:
    """The variables of the project: those of the caller, else of ``env_files``, else of .env. Raises UsageError."""
    from reconciler.convert.compose.dotenv import EnvFileError, parse_env_file

    default = os.path.join(directory, ".env")
    named = [*env_files] or ([default] if os.path.isfile(default) else [])
    variables: dict[str, str] = {}
    for path in named:
        try:
            raw = read_files([path])[path] if env_files else _read_found(path, files)
            variables |= parse_env_file(raw, {**variables, **environ})
        except EnvFileError as error:
            raise UsageError(f"{path}: {error}") from None
    name = os.path.basename(os.path.abspath(directory or "."))
    return {"COMPOSE_PROJECT_NAME": name, **variables, **environ}
