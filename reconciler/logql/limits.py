"""Limits the time of a query's expressions: some would take years. For programs whose main thread reads logs."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn, ParamSpec, TypeVar

from reconciler.errors import RefusedError

if TYPE_CHECKING:
    from types import FrameType

_LONGEST = 2.0
"""CPU seconds that the expressions of a query may take for the labels of a stream, or for one block."""

_Arguments = ParamSpec("_Arguments")
_Found = TypeVar("_Found")


def prepare_limits() -> None:
    """Let ``limit_time`` end calls of this process: it needs the signal SIGVTALRM and its timer."""
    signal.signal(signal.SIGVTALRM, _give_up)


def limit_time(call: Callable[_Arguments, _Found]) -> Callable[_Arguments, _Found]:
    """``call`` with a limit of CPU time. It raises RefusedError."""

    def call_bounded(*arguments: _Arguments.args, **named: _Arguments.kwargs) -> _Found:
        signal.setitimer(signal.ITIMER_VIRTUAL, _LONGEST)
        try:
            return call(*arguments, **named)
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)

    return call_bounded


def _give_up(number: int, frame: FrameType | None) -> NoReturn:  # noqa: ARG001
    raise RefusedError(
        "the query takes too long for a part of the lines; avoid nested repeats such as (a+)+, and choose lines by a "
        "text before they are parsed"
    )
