"""Usage of containers: from their control groups if they have some, otherwise summed over their processes."""

from __future__ import annotations

from collections.abc import Iterable

from reconciler.engines.host.runtimes import cgroups, procfs
from reconciler.engines.host.runtimes.process.labels import ProcessLabels
from reconciler.engines.host.runtimes.process.state_dir import StartRecord
from reconciler.engines.host.runtimes.protocol import ContainerId, Usage


def usage(labels: ProcessLabels, running: Iterable[StartRecord]) -> dict[ContainerId, Usage]:
    """The usage of each container; ``running`` are alive. Blocks while it reads some files for each.

    Without control groups, memory that processes share counts for each of them, and the CPU time of processes that
    their parents did not wait for is lost.
    """
    found: dict[ContainerId, Usage] = {}
    rest: list[StartRecord] = []
    for begun in running:
        grouped = cgroups.usage(begun.groups)
        if grouped is None:
            rest.append(begun)
        else:
            found[begun.place] = Usage(*grouped)
    if rest:
        found |= _sum(labels, rest)
    return found


def _sum(labels: ProcessLabels, running: list[StartRecord]) -> dict[ContainerId, Usage]:
    procs = procfs.list_processes()
    owned: dict[str, set[int]] = {labels.text(begun.place): set() for begun in running}
    for pid in procs:
        text = labels.text_in(procfs.environment(pid) or b"")
        if text in owned:
            owned[text].add(pid)
    found = {}
    for begun in running:
        pids = procfs.below(procs, owned[labels.text(begun.place)] | ({begun.pid} & procs.keys()))
        each = [procs[pid] for pid in pids]
        found[begun.place] = Usage(sum(one.cpu_seconds for one in each), sum(one.memory for one in each))
    return found
