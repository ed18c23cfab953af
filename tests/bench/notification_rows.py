"""Rows about notifications: what they add to a run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from statistics import median

from tests.bench.measure import measure_in_process
from tests.bench.measurements import FollowedCommit
from tests.bench.table import Row
from tests.bench.workspace import Installation, Workspace

SMALL = 1_000
TURNS = 4
COMMITS = 200
RULES = """notifications:
  channels:
    ops: {webhook: {url: "http://127.0.0.1:9/", secretFile: /etc/reconciler/secret}}
  rules:
    - {name: each, channels: [ops], states: [pending, running, success, failure, recovery, superseded]}
    - {name: shop, channels: [ops], gvcs: [shop], tags: {tier: front}}
"""


def notifications(workspace: Workspace) -> Iterator[Row]:
    """One-file commits with rules and without, in CPU seconds of the run; and what makes messages of one."""
    installation = workspace.applied(SMALL)
    taken: dict[Path, list[float]] = {installation.settings: [], _add_rules(installation): []}
    # In turn, so that a slow minute of the machine is one for both.
    for turn in range(2 * TURNS):
        for settings, seconds in taken.items():
            times, seed = workspace.often(COMMITS // (2 * TURNS)), 700_000 + 1_000 * turn + len(seconds)
            rows, _ = measure_in_process("commits", settings=settings, times=times, files=1, seed=seed)
            seconds += [FollowedCommit(*each).cpu for each in rows]
    without, with_rules = (median(seconds) for seconds in taken.values())
    note = f"CPU of a run {1000 * without:.2f} ms without, {1000 * with_rules:.2f} ms with"
    yield Row(
        "a run with rules of notifications: more CPU than without", max(0.0, with_rules - without), 0.001, note=note
    )
    made, _ = measure_in_process("messages", settings=list(taken)[1], times=workspace.often(COMMITS))
    yield Row("  messages made of it, in the thread of the sender, p50", median(made), 0, cpu=median(made))


def _add_rules(installation: Installation) -> Path:
    path = installation.settings.with_name("notifications.yaml")
    path.write_text(installation.settings.read_text() + RULES)
    return path
