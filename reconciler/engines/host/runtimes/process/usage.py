"""Usage of containers: from their control groups if they have some, otherwise summed over their processes."""

from __future__ import annotations

from collections.abc import Iterable

from reconciler.engines.host.runtimes import cgroups, procfs
from reconciler.engines.host.runtimes.process.labels import ProcessLabels
from reconciler.engines.host.runtimes.process.state_dir import StartRecord
from reconciler.engines.host.runtimes.protocol import ContainerId, Usage


def measure_usage(labels: ProcessLabels, running: Iterable[StartRecord]) -> dict[ContainerId, Usage]:
    """The usage of each container; ``running`` are alive. Blocks while it reads some files for each.

    Without control groups, memory that processes share counts for each of them, and the CPU time of processes that
    their parents did not wait for is lost.
    """
    usages: dict[ContainerId, Usage] = {}
    rest: list[StartRecord] = []
    for begun in running:
        grouped = cgroups.read_usage(begun.groups)
        if grouped is None:
            rest.append(begun)
        else:
            usages[begun.place] = Usage(*grouped)
    if rest:
        usages |= _sum_usage(labels, rest)
    return usages


def _sum_usage(labels: ProcessLabels, running: list[StartRecord]) -> dict[ContainerId, Usage]:
    procs = procfs.list_processes()
    owned: dict[str, set[int]] = {labels.text(begun.place): set() for begun in running}
    for pid in procs:
        text = labels.text_in(procfs.read_environment(pid) or b"")
        if text in owned:
            owned[text].add(pid)
    usages = {}
    for begun in running:
        pids = procfs.collect_descendants(procs, owned[labels.text(begun.place)] | ({begun.pid} & procs.keys()))
        process_infos = [procs[pid] for pid in pids]
        usages[begun.place] = Usage(
            sum(one.cpu_seconds for one in process_infos), sum(one.memory for one in process_infos)
        )
    return usages
