"""Collects the faults of a file that is being read, and ends the reading early."""

from __future__ import annotations

from typing import Never

from reconciler.documents.events import Event
from reconciler.documents.limits import Limits
from reconciler.errors import ParseError
from reconciler.model.finding import Fault


class LimitReached(ParseError):
    """Ends the reading of a file that exceeds a limit; the reason is among the faults."""


class FormFault(LimitReached):
    """Ends the reading of a file that has not the form that its name says; ``fault`` says where and why."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.message)
        self.fault = fault


class Sink:
    """The faults of one file, at most ``limits.faults`` of them."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.faults: list[Fault] = []

    def add(self, rule: str, event: Event, message: str, suggestion: str = "") -> None:
        """Add a fault at ``event``. Raises LimitReached at the maximum."""
        line, column = get_event_position(event)
        self.faults.append(Fault(rule, message, line, column, suggestion))
        if len(self.faults) >= self.limits.faults:
            raise LimitReached

    def end(self, rule: str, event: Event, message: str, suggestion: str = "") -> Never:
        """Add a fault that ends the reading. Raises LimitReached."""
        self.add(rule, event, message, suggestion)
        raise LimitReached


def get_event_position(event: Event) -> tuple[int, int]:
    """Line and column where ``event`` begins, counted from 1."""
    mark = event.start_mark
    return (mark.line + 1, mark.column + 1) if mark else (1, 1)
