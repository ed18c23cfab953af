"""Bugs that are contained: named by type and place, logged once, and never with a text, which may hold secrets."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from reconciler.errors import InternalError, ReconcilerError
from reconciler.logs import log

PACKAGE = Path(__file__).parent
MAX_FRAMES = 40
"""Innermost calls of a traceback in the log: that of an endless recursion has a thousand."""
MAX_LOGGED = 1000
"""Bugs that are remembered as logged. Beyond that the list begins anew, and each may be logged a second time."""

_logged: set[tuple[str, str, str]] = set()


def internal_error(error: BaseException, part: str = "", revision: str = "") -> InternalError:
    """``error`` as an InternalError; its traceback is logged where ``part`` names what met it.

    Logged once for each part, place and revision: what is tried again at every poll does not fill the log.
    """
    found = error if isinstance(error, InternalError) else _described(error)
    bug = (part, f"{found.kind} {found.place}", revision)
    if part and bug not in _logged:
        if len(_logged) >= MAX_LOGGED:
            _logged.clear()
        _logged.add(bug)
        facts = {"revision": revision} if revision else {}
        log().error("bug", part=part, error=found.kind, place=found.place, traceback=found.trace, **facts)
    return found


@contextmanager
def contained(part: str) -> Iterator[None]:
    """A bug that is met within, in ``part``, is logged and goes no further. Expected errors are raised as ever."""
    try:
        yield
    except ReconcilerError:
        raise
    except Exception as error:  # noqa: BLE001 - a bug in one place never takes down another
        internal_error(error, part)


def forget_logged() -> None:
    """Log every bug anew, as a process that has just started does."""
    _logged.clear()


def code_location(error: BaseException) -> str:
    """``reconciler/model/cron.py:41 in parse``: the innermost call of this program's own code that met ``error``."""
    frames = [(frame.f_code, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    own = [(code, line) for code, line in frames if PACKAGE in Path(code.co_filename).parents]
    if not frames:
        return "an unknown place"
    code, line = (own or frames)[-1]
    path = Path(code.co_filename)
    name = path.relative_to(PACKAGE.parent).as_posix() if own else path.name
    return f"{name}:{line} in {code.co_name}"


def _described(error: BaseException) -> InternalError:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    trace = "".join(traceback.format_tb(error.__traceback__, -MAX_FRAMES))
    return InternalError(type(error).__name__, code_location(error), trace)
