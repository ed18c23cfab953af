"""Structured log lines on standard error: text on a terminal, else JSON; never with secrets."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, MutableMapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TextIO, cast

from reconciler.printable import escape_text, printable_json, printable_lines

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

_LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}
_SECRET_NAME = (
    r"(?i)(?:^|[_.-])(?:token|secret|password|passwd|passphrase|credential|credentials|authorization|data"
    r"|api_?key|private_?key)$"
)
_CREDENTIALS = r"(\b[a-z][a-z0-9+.-]*://)[^/@\s'\"]+@"
_MASK = "***"
_configure_now: Callable[[], None] | None = None
"""Configures structlog as the last call of ``configure_logging`` requested; None once it is done."""


class _Forgiving:
    """A stream that drops text that it cannot write: its reader has gone, it is closed, or its disk is full."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> None:
        with suppress(OSError, ValueError):
            self._stream.write(text)

    def flush(self) -> None:
        with suppress(OSError, ValueError):
            self._stream.flush()


def configure_logging(format: str = "auto", level: str = "info", stream: TextIO | None = None) -> None:  # noqa: A002
    """Log events of ``level`` (debug, info, warning, error) and above to ``stream`` (default: standard error).

    ``format`` is console, json, or auto: console if the stream is a terminal. May be called again. It takes effect with
    the next event: structlog takes 6 MB, which a process that logs nothing does without.
    """
    global _configure_now
    _configure_now = partial(_configure_structlog, format, level, stream if stream is not None else sys.stderr)


def _configure_structlog(format: str, level: str, out: TextIO) -> None:  # noqa: A002
    import structlog

    console = format == "console" or (format == "auto" and out.isatty())
    people = structlog.dev.ConsoleRenderer(
        colors=out.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb",
        sort_keys=False,
        exception_formatter=structlog.dev.plain_traceback,
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            mask_event_secrets,
            *(
                (_escape_event_text, people)
                if console
                else (structlog.processors.JSONRenderer(ensure_ascii=False, default=str), _escaped_json)
            ),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[level]),
        logger_factory=structlog.PrintLoggerFactory(cast(TextIO, _Forgiving(out))),
        cache_logger_on_first_use=False,
    )


def log() -> FilteringBoundLogger:
    """The logger: ``log().info("run", source="main", applied=3)``; facts are keys, never sentences."""
    global _configure_now
    import structlog

    if _configure_now is None and not structlog.is_configured():  # a command, whose standard output is for its result
        configure_logging()
    if _configure_now is not None:
        _configure_now()
        _configure_now = None
    logger: FilteringBoundLogger = structlog.get_logger()
    return logger


def _escape_event_text(_logger: object, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """A structlog processor for the console: no text controls the terminal, only a traceback spans lines."""
    for name, value in event.items():
        if isinstance(value, str):
            event[name] = printable_lines(value) if name == "exception" else escape_text(value)
    return event


def _escaped_json(_logger: object, _method: str, line: str) -> str:
    return printable_json(line)


def mask_event_secrets(_logger: object, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """A structlog processor that masks values under secret names, and credentials in URLs, at any depth."""
    for name, value in event.items():
        event[name] = _without_secrets(name, value)
    return event


def _without_secrets(name: str, value: Any) -> Any:
    if re.search(_SECRET_NAME, name):
        return _MASK
    if isinstance(value, str):
        return re.sub(_CREDENTIALS, rf"\1{_MASK}@", value)
    if isinstance(value, dict):
        return {key: _without_secrets(str(key), item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_without_secrets("", item) for item in value]
    return value
