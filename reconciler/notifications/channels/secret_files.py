"""Reads files with secrets of channels, plain or encrypted with SOPS; no error has any of their content."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from reconciler.documents.limits import read_within
from reconciler.errors import UsageError
from reconciler.notifications.channels.channel import SendFailed
from reconciler.settings import Settings
from reconciler.sops.keys import Keyring

_MARK, _WHOLE = "sops", "data"
"""The field by which a file is encrypted with SOPS, and the one with the whole of what was no YAML and no JSON."""


def _get_no_keyring() -> Keyring:
    return Keyring(absence="the settings name no identity to decrypt this with", required=True)


class SecretFiles:
    """Reads secrets anew each time, so that a new one counts at once. ``get_keyring`` is asked for encrypted files.

    ``FILE#FIELD`` is one field of an encrypted YAML or JSON file. Of one that was encrypted as a whole, or has a single
    field, the name says all. Every method raises SendFailed: the file may be there at the next try.
    """

    def __init__(self, get_keyring: Callable[[], Keyring] = _get_no_keyring) -> None:
        self._get_keyring = get_keyring

    def read_line(self, path: Path, what: str) -> str:
        """The one line of ``path``."""
        lines = self.read_lines(path, what)
        if len(lines) > 1:
            raise SendFailed(f"{path} has several lines, and a {what} is one")
        return lines[0]

    def read_lines(self, path: Path, what: str) -> list[str]:
        """The lines of ``path`` that are not empty and no comments, at least one."""
        lines = [line.strip() for line in self.read_text(path, what).splitlines()]
        named = [line for line in lines if line and not line.startswith("#")]
        if not named:
            raise SendFailed(f"{path} has no {what}")
        return named

    def read_text(self, path: Path, what: str) -> str:
        """The text of ``path``, decrypted if it is encrypted."""
        file, field = _split_field(path)
        try:
            raw = read_within(file)
            text = raw.decode()
        except (OSError, UnicodeDecodeError, UsageError) as error:
            raise SendFailed(f"the {what} in {path} cannot be read: {_describe_error(error)}") from None
        if f"{_MARK}:" not in text and f'"{_MARK}"' not in text:
            if field:
                raise SendFailed(f"the {what} in {path} cannot be read: {file} is not encrypted with SOPS")
            return text
        return self._decrypt(raw, path, what) or text

    def _decrypt(self, raw: bytes, path: Path, what: str) -> str:
        """The secret in ``raw``; "" if that is not encrypted."""
        # Few hosts have such a file, and the reader of YAML takes a while to import.
        from reconciler.documents.reader import parse_documents
        from reconciler.sops.decrypt import open_all

        file, field = _split_field(path)
        reading = parse_documents(raw)
        opened = open_all(raw, reading, self._get_keyring())
        if not opened and not field:
            return ""
        if len(opened) != 1 or reading.faults:
            raise SendFailed(f"the {what} in {path} cannot be read: {file} is no single document encrypted with SOPS")
        document = next(iter(opened.values()))
        if document.locked:
            trouble = next(iter(document.troubles), None)
            why = "it cannot be decrypted" if trouble is None else f"{trouble.message}; {trouble.suggestion}"
            raise SendFailed(f"the {what} in {path} cannot be read: {why}")
        return _choose_field(document.value, path, what)


class SecretFile(NamedTuple):
    """The file ``path``, and what reads it."""

    path: Path
    files: SecretFiles

    def read(self, what: str) -> str:
        """Its text. Raises SendFailed."""
        return self.files.read_text(self.path, what)


def make_secret_files(settings: Settings) -> SecretFiles:
    """What reads secrets with the identity of ``settings``."""

    def get_keyring() -> Keyring:
        from reconciler.secrets.host_files import keyring_of

        return keyring_of(settings)

    return SecretFiles(get_keyring)


def _split_field(path: Path) -> tuple[Path, str]:
    """The file and the field that ``path`` names; a file that has the very name is meant itself."""
    name, mark, field = path.name.rpartition("#")
    return (path, "") if not mark or path.exists() else (path.with_name(name), field)


def _choose_field(value: dict[str, Any], path: Path, what: str) -> str:
    _, field = _split_field(path)
    names = [field] if field else [_WHOLE] if _WHOLE in value else list(value)
    if len(names) != 1:
        raise SendFailed(f"{path} has several fields: write {path}#FIELD, with the name of the one with the {what}")
    text = value.get(names[0])
    if not isinstance(text, str):
        raise SendFailed(f"{path}: the field {names[0]} is missing, or no text")
    return text


def _describe_error(error: Exception) -> str:
    """What is wrong with a file, without any of its content."""
    return str(error.strerror) if isinstance(error, OSError) else "it is no text of a usual size"
