"""Reads files with secrets of channels; no error has any of their content."""

from __future__ import annotations

from pathlib import Path

from reconciler.documents.limits import read_within
from reconciler.errors import UsageError
from reconciler.notifications.channel import SendFailed


def read_secret_file(path: Path, what: str) -> str:
    """The one line of the file ``path``. Raises SendFailed: the file may be there at the next try."""
    lines = read_secret_lines(path, what)
    if len(lines) > 1:
        raise SendFailed(f"{path} has several lines, and a {what} is one")
    return lines[0]


def read_secret_lines(path: Path, what: str) -> list[str]:
    """The lines of the file ``path`` that are not empty and no comments, at least one. Raises SendFailed."""
    try:
        text = read_within(path).decode()
    except (OSError, UnicodeDecodeError, UsageError) as error:
        raise SendFailed(f"the {what} in {path} cannot be read: {_describe_error(error)}") from None
    lines = [line.strip() for line in text.splitlines()]
    named = [line for line in lines if line and not line.startswith("#")]
    if not named:
        raise SendFailed(f"{path} has no {what}")
    return named


def _describe_error(error: Exception) -> str:
    """What is wrong with a file, without any of its content."""
    return str(error.strerror) if isinstance(error, OSError) else "it is no text of a usual size"
