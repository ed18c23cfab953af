"""The unhealthy resources that `reconciler apply --wait` waits for: shown meanwhile, and listed at a timeout."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from threading import Event, Thread
from typing import TYPE_CHECKING

from reconciler.cli.output.progress import LINE_SECONDS, WaitDisplay
from reconciler.errors import RecordsError
from reconciler.render.layout import strip_control
from reconciler.terminal.folding import can_redraw

if TYPE_CHECKING:
    from reconciler.records.store import Records
    from reconciler.settings import Settings

POLL_SECONDS = 0.2
"""Seconds between reads of the records."""
MOST = 10
"""Limit of lines for unhealthy resources; one line replaces the rest."""


@contextmanager
def show_unhealthy(settings: Settings, wait: bool) -> Iterator[None]:
    """Show unhealthy resources, on a terminal a line each until the end, else the first one each 10 seconds."""
    if not wait:
        yield
        return
    over = Event()
    drawing = Thread(target=_draw_progress, args=(settings, over), daemon=True)
    drawing.start()
    try:
        yield
    finally:
        over.set()
        drawing.join()


def unhealthy_lines(records: Records, *, loading_only: bool = False) -> list[str]:
    """``workload/shop/api@local  1 of 2 replicas updated, 0 available``, a line for each unhealthy resource.

    With ``loading_only``, only for those that are on their way.
    """
    from reconciler.status.progress import unhealthy_resources

    chosen = (resource for resource in unhealthy_resources(records) if resource.loads or not loading_only)
    resources = list(islice(chosen, MOST + 1))
    width = max((len(resource.target) for resource in resources), default=0)
    lines = [f"{resource.target:<{width}}  {strip_control(resource.message)}" for resource in resources[:MOST]]
    return lines if len(resources) <= MOST else [*lines, "… and more; see: reconciler get"]


def sum_up_lines(lines: list[str]) -> str:
    """``waiting: workload/shop/api@local  1 of 2 replicas updated, 0 available; and 3 more``."""
    more = f"; and {len(lines) - 1} more" if lines[1:] else ""
    return f"waiting: {lines[0]}{more}" if lines else "waiting for the run"


def _draw_progress(settings: Settings, over: Event) -> None:
    """Draw until ``over`` is set; this thread needs a connection of its own to the records."""
    from reconciler.records.store import FILE, Records

    records: Records | None = None
    is_drawn = can_redraw(sys.stdout)
    with WaitDisplay(sys.stdout if is_drawn else sys.stderr) as display:
        while not over.wait(POLL_SECONDS if is_drawn else LINE_SECONDS):
            with suppress(RecordsError):
                records = records or Records.open(settings.state / FILE, read_only=True)
                lines = unhealthy_lines(records)
                display.show(lines if is_drawn else [sum_up_lines(lines)])
    if records is not None:
        records.close()
