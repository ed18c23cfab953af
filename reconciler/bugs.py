"""Contained bugs: named by type and place, logged once, without the text of the exception, which may hold secrets."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from reconciler.errors import InternalError, ReconcilerError
from reconciler.logs import log

PACKAGE = Path(__file__).parent
MAX_FRAMES = 40
"""The most calls of a logged traceback, the innermost; an endless recursion has a thousand."""
MAX_LOGGED = 1000
"""The most bugs remembered as logged. A full list is emptied, and each bug may be logged a second time."""

_logged: set[tuple[str, str, str]] = set()


def internal_error(error: BaseException, part: str = "", revision: str = "") -> InternalError:
    """``error`` as an InternalError; if ``part`` names the part of the program, the traceback is logged.

    Each part, place and revision is logged once, so that a retry at every poll does not fill the log.
    """
    fault = error if isinstance(error, InternalError) else _describe_error(error)
    bug = (part, f"{fault.kind} {fault.place}", revision)
    if part and bug not in _logged:
        if len(_logged) >= MAX_LOGGED:
            _logged.clear()
        _logged.add(bug)
        facts = {"revision": revision} if revision else {}
        log().error("bug", part=part, error=fault.kind, place=fault.place, traceback=fault.trace, **facts)
    return fault


@contextmanager
def contain_bugs(part: str) -> Iterator[None]:
    """Log a bug inside the block under the name ``part`` and suppress it. Expected errors are raised."""
    try:
        yield
    except ReconcilerError:
        raise
    except Exception as error:  # noqa: BLE001 - a bug in one place never takes down another
        internal_error(error, part)


def code_location(error: BaseException) -> str:
    """``reconciler/model/cron.py:41 in parse``: the innermost call of this program that raised ``error``."""
    frames = [(frame.f_code, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    own = [(code, line) for code, line in frames if PACKAGE in Path(code.co_filename).parents]
    if not frames:
        return "an unknown place"
    code, line = (own or frames)[-1]
    path = Path(code.co_filename)
    name = path.relative_to(PACKAGE.parent).as_posix() if own else path.name
    return f"{name}:{line} in {code.co_name}"


def _describe_error(error: BaseException) -> InternalError:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    trace = "".join(traceback.format_tb(error.__traceback__, -MAX_FRAMES))
    return InternalError(type(error).__name__, code_location(error), trace)
