"""The tags of a workload that name a command which checks copies of the snapshots of its volumes."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from reconciler.model.cron import Cron, CronError
from reconciler.model.kinds.workload import Workload, mounted_in
from reconciler.model.platform import VERIFY_SCHEDULE, VERIFY_SNAPSHOT
from reconciler.model.snapshot_hooks import parse_hook

DAILY = "0 4 * * *"
"""The schedule of a check without one, in UTC."""


class SnapshotCheck(NamedTuple):
    """The command, which runs in a copy of ``container``; () for none. ``schedule`` is a cron schedule in UTC."""

    container: str = ""
    command: tuple[str, ...] = ()
    schedule: str = ""


def read_snapshot_check(body: bytes, volumeset: str) -> SnapshotCheck:
    """The check in the ``body`` of a workload, in normal form, for its volume of the volume set of that name.

    Without a command it has the first container that mounts the volume, and no schedule.
    """
    if not body:
        return SnapshotCheck()
    workload = msgspec.json.decode(body, type=Workload)
    container = next(
        (container.name for container in workload.spec.containers if volumeset in mounted_in([container])), ""
    )
    command = parse_hook(str(workload.tags.get(VERIFY_SNAPSHOT, "")))
    if not container or not command:
        return SnapshotCheck(container)
    schedule = str(workload.tags.get(VERIFY_SCHEDULE, DAILY))
    return SnapshotCheck(container, command, DAILY if schedule_fault(schedule) else schedule)


def schedule_fault(text: str) -> str:
    """Why ``text`` is no schedule; "" if it is one."""
    try:
        Cron.parse(text)
    except CronError as error:
        return str(error)
    return ""
