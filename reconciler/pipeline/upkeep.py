"""Upkeep of the records and the status branches, at moments when no run waits for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from reconciler.errors import RecordsError, SourceError
from reconciler.logs import log
from reconciler.pipeline.runner import Runner

Work = Callable[[], object]
"""A piece of work that any thread may do while the runner goes on."""


def due_upkeep(runner: Runner) -> Iterator[Work]:
    """What is due: the records' checkpoint, the sweep of their cache, and the packing of status branches."""
    if runner.records.needs_checkpoint():
        yield runner.records.checkpoint
    if runner.records.documents.needs_sweep():
        yield runner.records.documents.sweep
    for writer in runner.writers.values():
        if writer.needs_packing():
            yield writer.pack


def run_upkeep(due: Iterable[Work]) -> None:
    """Do what is ``due``. What fails changes nothing, and is due again later."""
    for work in due:
        try:
            work()
        except (SourceError, RecordsError) as error:
            log().warning("upkeep", reason=error.reason, message=str(error))
