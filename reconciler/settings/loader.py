"""Loads the settings file: parses it like a manifest, checks it against its schema, and converts it to types."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from reconciler.errors import UsageError
from reconciler.model.finding import Fault, Finding
from reconciler.settings.checks import settings_faults
from reconciler.settings.types import SERVICE_STATE, Settings, is_local
from reconciler.times import parse_duration

DEFAULT_PATH = "/etc/reconciler/settings.yaml"
ENVIRONMENT = "RECONCILER_SETTINGS"


class SettingsError(UsageError):
    """The settings have faults: ``findings`` refer to positions in ``raw``, the bytes of the file at ``path``."""

    def __init__(self, path: Path, raw: bytes, faults: Sequence[Fault]) -> None:
        self.path = path
        self.raw = raw
        self.findings = [Finding.at(str(path), fault) for fault in faults]
        super().__init__("\n".join(map(_format_finding_line, self.findings)))


def settings_path(option: str | None) -> Path:
    """The path of the settings file: from ``--settings``, otherwise from RECONCILER_SETTINGS, otherwise the default."""
    return Path(option or os.environ.get(ENVIRONMENT) or DEFAULT_PATH)


def load_settings(path: Path) -> Settings:
    """Read the settings at ``path``; relative paths in them start at the directory of the file.

    Raises SettingsError that lists every fault as ``FILE:LINE:COLUMN: message (suggestion)``, and UsageError if there
    is no readable file.
    """
    # The process of the API gets its settings from the daemon, and does without a reader of YAML.
    from reconciler.documents.limits import read_within
    from reconciler.documents.locator import locate_document
    from reconciler.documents.reader import parse_documents
    from reconciler.documents.schema.validator import get_checker, is_valid

    try:
        raw = read_within(path)
    except OSError as error:
        ways = "name another file with --settings"
        if isinstance(error, FileNotFoundError):
            ways += ", or run a directory without any: reconciler up"
        raise UsageError(f"cannot read the settings {path}: {error.strerror}; {ways}") from None
    reading = parse_documents(raw)
    if reading.faults:
        faults = reading.faults
        for document in reading.partial:
            faults = get_checker("settings").renew_advice(faults, document.value, locate_document(raw, document.index))
        raise SettingsError(path, raw, faults)
    if len(reading.documents) != 1:
        raise UsageError(f"{path}: settings are one YAML document, and this file has {len(reading.documents)}")
    value = reading.documents[0].value
    if not is_valid("settings", value):
        faults = get_checker("settings").faults(value, locate_document(raw, reading.documents[0].index))
        raise SettingsError(path, raw, faults)
    base = path.absolute().parent
    if wrong := settings_faults(value, base):
        places = locate_document(raw, reading.documents[0].index)
        raise SettingsError(
            path, raw, [Fault(fault.rule, fault.message, *places.value(fault.at), fault.suggestion) for fault in wrong]
        )
    return _convert_settings(value, base)


def settings_digest(settings: Settings) -> str:
    """A digest that equal settings have, and no others."""
    encoded = msgspec.json.encode(settings, enc_hook=str, order="deterministic")
    return hashlib.blake2b(encoded, digest_size=16).hexdigest()


def _convert_settings(value: dict[str, Any], base: Path) -> Settings:
    def convert(target: type, text: object) -> object:
        if target is not Path or not isinstance(text, str):
            raise NotImplementedError(f"settings cannot contain a {target}")
        return base / text

    from reconciler.documents.schema.loader import load_schema

    plain = _in_seconds(load_schema("settings"), value)
    plain.setdefault("state", str(_default_state()))
    plain["sources"] = [_complete_source(source, base) for source in plain["sources"]]
    return msgspec.convert(plain, Settings, dec_hook=convert)


def _default_state() -> Path:
    """The state directory of settings that name none: that of the service, or where it is not installed, the user's."""
    if os.geteuid() == 0 or SERVICE_STATE.exists():
        return SERVICE_STATE
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "reconciler" / "service"


def _complete_source(source: dict[str, Any], base: Path) -> dict[str, Any]:
    complete = dict(source)
    if not any(complete.get(name) for name in ("branch", "tag", "commit")):
        complete["branch"] = "main"
    if is_local(complete["url"]):
        complete["url"] = str(base / complete["url"])
    return complete


def _in_seconds(schema: dict[str, Any], value: Any) -> Any:
    if isinstance(value, dict):
        properties = schema.get("properties", {})
        return {name: _in_seconds(properties.get(name, schema["additionalProperties"]), value[name]) for name in value}
    if isinstance(value, list):
        return [_in_seconds(schema["items"], item) for item in value]
    return parse_duration(value) if schema.get("x-duration") and isinstance(value, str) else value


def _format_finding_line(finding: Finding) -> str:
    advice = f" ({finding.suggestion})" if finding.suggestion else ""
    return f"{finding.path}:{finding.line}:{finding.column}: {finding.message}{advice}"
