"""Loads the settings file: parses it like a manifest, checks it against its schema, and converts it to types."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from reconciler.documents.limits import read_within
from reconciler.documents.locator import locate
from reconciler.documents.reader import read
from reconciler.documents.schema.loader import load_schema
from reconciler.documents.schema.validator import checker
from reconciler.errors import UsageError
from reconciler.model.finding import Fault, Finding, Pointer
from reconciler.model.rule import error_rule
from reconciler.settings.types import Settings, StatusSettings, is_local

DEFAULT_PATH = "/etc/reconciler/settings.yaml"
ENVIRONMENT = "RECONCILER_SETTINGS"
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


RULES = (
    error_rule(
        "duplicate-name",
        "Each source in the settings has a unique name.",
        "Records, conditions and commands distinguish sources by their names.",
        "docs/settings.md#settings",
    ),
    error_rule(
        "status-branch",
        "A source writes its status to a branch that no other source writes or follows.",
        "Two writers would delete each other's files, and a follower would read status as manifests.",
        "docs/settings.md#settings",
    ),
    error_rule(
        "secrets-directory",
        "The directory for secrets of a source is not inside that of another source.",
        "Users with push access to the other source could use every file in it.",
        "docs/settings.md#settings",
    ),
)
"""Rules for the settings as a whole, beyond single fields."""


class SettingsFault(NamedTuple):
    """One fault: its rule, the value at which it is, a message, and a suggestion."""

    rule: str
    message: str
    at: Pointer
    suggestion: str


class SettingsError(UsageError):
    """The settings have faults: ``findings`` refer to positions in ``raw``, the bytes of the file at ``path``."""

    def __init__(self, path: Path, raw: bytes, faults: Sequence[Fault]) -> None:
        self.path = path
        self.raw = raw
        self.findings = [Finding.at(str(path), fault) for fault in faults]
        super().__init__("\n".join(map(_line, self.findings)))


def settings_path(option: str | None) -> Path:
    """The path of the settings file: from ``--settings``, otherwise from RECONCILER_SETTINGS, otherwise the default."""
    return Path(option or os.environ.get(ENVIRONMENT) or DEFAULT_PATH)


def load_settings(path: Path) -> Settings:
    """Read the settings at ``path``; relative paths in them start at the directory of the file.

    Raises SettingsError that lists every fault as ``FILE:LINE:COLUMN: message (suggestion)``, and UsageError if there
    is no readable file.
    """
    try:
        raw = read_within(path)
    except OSError as error:
        raise UsageError(
            f"cannot read the settings {path}: {error.strerror}; name another file with --settings"
        ) from None
    reading = read(raw)
    if reading.faults:
        faults = reading.faults
        for document in reading.partial:
            faults = checker("settings").readvised(faults, document.value, locate(raw, document.index))
        raise SettingsError(path, raw, faults)
    if len(reading.documents) != 1:
        raise UsageError(f"{path}: settings are one YAML document, and this file has {len(reading.documents)}")
    value = reading.documents[0].value
    check = checker("settings")
    if not check.valid(value):
        raise SettingsError(path, raw, check.faults(value, locate(raw, reading.documents[0].index)))
    base = path.absolute().parent
    sources = value["sources"]
    if wrong := [*_repeated_names(sources), *_shared_branches(sources, base), *_nested_directories(sources, base)]:
        places = locate(raw, reading.documents[0].index)
        raise SettingsError(
            path, raw, [Fault(each.rule, each.message, *places.value(each.at), each.suggestion) for each in wrong]
        )
    return _typed(value, base)


def parse_duration(text: str) -> float:
    """A duration such as ``500ms``, ``30s``, ``5m``, ``1.5h`` or ``2d`` in seconds. Raises ValueError."""
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d)", text)
    if match is None:
        raise ValueError(f"{text!r} is not a duration such as 500ms, 30s or 1.5h")
    return float(match[1]) * _UNITS[match[2]]


def _typed(value: dict[str, Any], base: Path) -> Settings:
    def convert(wanted: type, text: object) -> object:
        if wanted is not Path or not isinstance(text, str):
            raise NotImplementedError(f"settings cannot contain a {wanted}")
        return base / text

    plain = _in_seconds(load_schema("settings"), value)
    plain["sources"] = [_followed(source, base) for source in plain["sources"]]
    return msgspec.convert(plain, Settings, dec_hook=convert)


def _followed(source: dict[str, Any], base: Path) -> dict[str, Any]:
    complete = dict(source)
    if not any(complete.get(name) for name in ("branch", "tag", "commit")):
        complete["branch"] = "main"
    if is_local(complete["url"]):
        complete["url"] = str(base / complete["url"])
    return complete


def _in_seconds(schema: dict[str, Any], value: Any) -> Any:
    if isinstance(value, dict):
        known = schema.get("properties", {})
        return {name: _in_seconds(known.get(name, schema["additionalProperties"]), value[name]) for name in value}
    if isinstance(value, list):
        return [_in_seconds(schema["items"], item) for item in value]
    return parse_duration(value) if schema.get("x-duration") else value


def _repeated_names(sources: list[dict[str, Any]]) -> Iterator[SettingsFault]:
    seen: set[str] = set()
    for position, source in enumerate(sources):
        if source["name"] in seen:
            at = ("sources", position, "name")
            message = f"two sources are named `{source['name']}`"
            yield SettingsFault("duplicate-name", message, at, "give each a name of its own")
        seen.add(source["name"])


def _shared_branches(sources: list[dict[str, Any]], base: Path) -> Iterator[SettingsFault]:
    """Status branches that two sources of one repository share, or that one of them follows."""
    followed = {
        (_repository(source["url"], base), source.get("branch") or "main"): source["name"]
        for source in sources
        if not source.get("tag") and not source.get("commit")
    }
    written: dict[tuple[str, str], str] = {}
    for position, source in enumerate(sources):
        name, status = source["name"], source.get("status", {})
        if source.get("readOnly") or not (is_local(source["url"]) or status.get("push", True)):
            continue
        mark = (_repository(source["url"], base), status.get("branch", StatusSettings().branch))
        at: Pointer = ("sources", position, "status", "branch") if "branch" in status else ("sources", position)
        advice = f"give `{name}` another, such as `status: {{branch: {StatusSettings().branch}-{name}}}`"
        if mark in followed:
            what = f"the status of source `{name}` cannot go to `{mark[1]}`, the branch that `{followed[mark]}` follows"
            yield SettingsFault("status-branch", what, at, advice)
        elif mark in written:
            what = f"sources `{written[mark]}` and `{name}` would write their status to one branch, `{mark[1]}`"
            yield SettingsFault("status-branch", what, at, advice)
        written.setdefault(mark, name)


def _nested_directories(sources: list[dict[str, Any]], base: Path) -> Iterator[SettingsFault]:
    """Directories for secrets that are inside one of another source; several sources may name the same directory."""
    named = [(position, source.get("secrets", {}).get("directory")) for position, source in enumerate(sources)]
    found = [(position, (base / name).resolve()) for position, name in named if name]
    for position, inner in found:
        outer = next((other for other, path in found if path != inner and inner.is_relative_to(path)), None)
        if outer is not None:
            what = f"`{sources[outer]['name']}` may use every file in it, since it is inside that source's directory"
            at: Pointer = ("sources", position, "secrets", "directory")
            yield SettingsFault("secrets-directory", what, at, "use two separate directories")


def _repository(url: str, base: Path) -> str:
    """A normalized repository URL, equal for the usual spellings of one repository."""
    local = url.removeprefix("file://") if url.startswith("file://") else url if is_local(url) else None
    if local is None:
        return url.rstrip("/").removesuffix(".git")
    return str((base / Path(local).expanduser()).resolve()).removesuffix("/.git")


def _line(finding: Finding) -> str:
    advice = f" ({finding.suggestion})" if finding.suggestion else ""
    return f"{finding.path}:{finding.line}:{finding.column}: {finding.message}{advice}"
