"""Rows about the `platform` command: its start, a read, a completion, and a long list."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from tests.bench import large_gvc
from tests.bench.api_rows import served
from tests.bench.measure import BIN, Failed, Measured, middle, middle_of, run
from tests.bench.table import Row
from tests.bench.workspace import Workspace

PLATFORM = BIN / "platform"
ITEMS = 10_000
_PEAK = """import resource, subprocess, sys
subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, check=True)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""
"""Kilobytes of a program. Its parent is small: a process counts the memory of its parent until it has begun."""


def platform(workspace: Workspace) -> Iterator[Row]:
    """Whole processes of the command, against a daemon on this host."""
    times = workspace.often(20)
    bare = middle([sys.executable, "-c", "pass"], times)
    yield _row(
        "platform --version", middle([PLATFORM, "--version"], times), 0.08, f"python alone {bare.cpu * 1000:.0f} ms"
    )
    count = ITEMS // (10 if workspace.quick else 1)
    installation = workspace.applied(count, "large-gvc")
    name = large_gvc.workload_name(count // 2)
    with served(workspace, installation) as (_, socket):
        env = {
            "PLATFORM_ENDPOINT": f"unix://{socket}",
            "PLATFORM_ORG": "acme",
            "PLATFORM_GVC": large_gvc.NAME,
            "XDG_CONFIG_HOME": str(workspace.scratch),
        }
        yield _row(
            f"platform workload get of one of {count:,}", middle([PLATFORM, "workload", "get", name], times, env), 0.15
        )
        asked = {
            "_PLATFORM_COMPLETE": "bash_complete",
            "COMP_WORDS": f"platform workload get {name}",
            "COMP_CWORD": "3",
        }
        runs = [each for each in (run([PLATFORM], env | asked) for _ in range(times)) if name in each.output]
        if not runs:
            raise Failed(f"no completion of {name} came in time")
        yield _row("completion of a name from the server", middle_of(runs), 0.1, f"{len(runs)} of {times} in time")
        listed = middle([PLATFORM, "workload", "get", "--max", "0"], workspace.often(5), env)
        if listed.output.count("\n") != count + 1:
            raise Failed(f"the list of {count} has {listed.output.count(chr(10))} lines")
        yield _row(f"platform workload get of all {count:,}", listed, 2.0 * count / ITEMS)
        peak = run([sys.executable, "-c", _PEAK, PLATFORM, "workload", "get", "--max", "0"], env).output
        yield Row("  memory", int(peak) / 1024, 45, "MB")


def _row(what: str, measured: Measured, limit: float, note: str = "") -> Row:
    return Row(what, measured.wall, limit, note=note, cpu=measured.cpu)
