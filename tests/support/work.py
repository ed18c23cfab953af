"""Counts work instead of time: the counts are the same on every machine, however busy it is."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from reconciler.records.store import Records

INSTRUCTIONS = 10
"""SQLite reports each time that its virtual machine has executed so many instructions."""


class Work:
    """What is done inside ``counted``.

    ``calls`` are calls of functions of Python and of C, in the thread that counts and in those that it starts.
    ``instructions`` are those of SQLite's virtual machine: about ten for each row that it reads.
    """

    def __init__(self) -> None:
        self.calls = 0
        self.statements = 0
        self.instructions = 0
        self._by_code: Counter[CodeType] = Counter()

    def calls_of(self, *functions: Callable[..., Any]) -> int:
        """How often ``functions`` of Python were called."""
        return sum(self._by_code[function.__code__] for function in functions)

    def note_call(self, frame: FrameType, event: str, _: Any) -> None:
        """Count a call; a function for ``sys.setprofile``."""
        if event == "call":
            self._by_code[frame.f_code] += 1
            self.calls += 1
        elif event == "c_call":
            self.calls += 1

    def note_statement(self, _: str) -> None:
        """Count a statement."""
        self.statements += 1

    def note_instructions(self) -> None:
        """Count instructions of SQLite."""
        self.instructions += INSTRUCTIONS


@contextmanager
def counted(records: Records | None = None) -> Iterator[Work]:
    """Count until the end what this thread does, and those that it starts; of ``records`` the statements too."""
    work = Work()
    connection = records._database._connection if records is not None else None
    if connection is not None:
        connection.set_trace_callback(work.note_statement)
        connection.set_progress_handler(work.note_instructions, INSTRUCTIONS)
    before = sys.getprofile()
    threading.setprofile(work.note_call)
    sys.setprofile(work.note_call)
    try:
        yield work
    finally:
        sys.setprofile(before)
        threading.setprofile(None)  # type: ignore[arg-type]
        if connection is not None:
            connection.set_progress_handler(None, 0)
            connection.set_trace_callback(None)


def object_sizes(repository: Path) -> list[int]:
    """The sizes of the files with objects of Git."""
    return [path.stat().st_size for path in (repository / "objects").rglob("*") if path.is_file()]
