"""Other programs run and measured: seconds on the clock, seconds of computing, the most memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
TICKS = os.sysconf("SC_CLK_TCK")
AS_INSTALLED = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
"""Who installs a program has it compiled, and is not made to wait for that at each start."""
ON_HOST = {name: value for name, value in AS_INSTALLED.items() if name not in ("SSL_CERT_FILE", "SSL_CERT_DIR")}
"""A host names no certificates in the environment; pygit2 would read all of them each time it is imported."""


class Measured(NamedTuple):
    """One run of a program: seconds, and megabytes of its largest process."""

    wall: float
    cpu: float
    peak: float
    output: str

    def note(self) -> str:
        """What a row adds to its figure."""
        return f"at most {self.peak:.0f} MB"


class Failed(Exception):
    """A program ended as it should not have."""


def run(
    command: Sequence[str | Path], env: Mapping[str, str] | None = None, codes: Sequence[int] = (0,), cwd: Path = ROOT
) -> Measured:
    """Run ``command`` to its end. Raises Failed, with its last output, where its exit code is not in ``codes``."""
    with tempfile.TemporaryFile() as out:
        began = time.perf_counter()
        child = subprocess.Popen(
            [str(word) for word in command],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            env={**(ON_HOST if Path(command[0]).parent == BIN else AS_INSTALLED), **(env or {})},
            cwd=cwd,
        )
        # Not child.wait(): only wait4 returns the use of this one child and of those it waited for.
        _, status, used = os.wait4(child.pid, 0)
        wall = time.perf_counter() - began
        child.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        output = out.read().decode(errors="replace")
    if child.returncode not in codes:
        raise Failed(f"{' '.join(map(str, command))} ended with {child.returncode}:\n{output[-2000:]}")
    return Measured(wall, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024, output)


def middle(command: Sequence[str | Path], times: int, env: Mapping[str, str] | None = None) -> Measured:
    """The run of median wall time out of ``times``; files are in memory after the first, which does not count."""
    run(command, env)
    return middle_of([run(command, env) for _ in range(times)])


def middle_of(runs: Sequence[Measured]) -> Measured:
    """The run of median wall time, with the median CPU time of all."""
    ranked = sorted(runs)
    return ranked[len(ranked) // 2]._replace(cpu=median(each.cpu for each in runs))


def in_turn(programs: Mapping[str, Callable[[], Measured]], times: int) -> dict[str, Measured | Failed]:
    """The middle run of each program, or why it has none. They run in turn: a slow minute is one for all."""
    runs: dict[str, list[Measured]] = {name: [] for name in programs}
    failed: dict[str, Measured | Failed] = {}
    for _ in range(times):
        for name in [each for each in programs if each not in failed]:
            try:
                runs[name].append(programs[name]())
            except (Failed, OSError) as error:
                failed[name] = Failed(str(error))
    return {name: failed.get(name) or middle_of(found) for name, found in runs.items()}


def measure_in_process(what: str, **arguments: Any) -> tuple[Any, Measured]:
    """What ``tests.bench.measurements`` found out in a process of its own, and what the process took."""
    measured = run([sys.executable, "-m", "tests.bench.measurements", what, json.dumps(arguments, default=str)])
    return json.loads(measured.output.splitlines()[-1]), measured


class OtherPrograms:
    """How much of this machine other programs used since this was made: with much of it, times mean little.

    Ours are this process and its descendants. A container that Podman starts is not one of them.
    """

    def __init__(self) -> None:
        self._began = time.perf_counter()
        self._busy, self._own = sum(_machine_cpu()), _cpu_of_descendants(os.getpid())

    def seconds(self) -> float:
        """How long ago this was made."""
        return time.perf_counter() - self._began

    def share(self) -> float:
        """Part of all CPU time, 0 to 1."""
        # A descendant that another process adopts takes its CPU along: our own never shrinks by that.
        own = max(0.0, _cpu_of_descendants(os.getpid()) - self._own)
        whole = self.seconds() * (os.cpu_count() or 1)
        return min(1.0, max(0.0, sum(_machine_cpu()) - self._busy - own) / whole)


def machine_cpu() -> float:
    """CPU seconds that all programs of this machine have used."""
    return _machine_cpu()[0]


def _machine_cpu() -> tuple[float, float]:
    """CPU seconds that all programs have used, and those that the hypervisor gave to other machines meanwhile."""
    with open("/proc/stat") as file:
        user, nice, system, _, _, interrupts, soft, stolen, *_ = map(int, file.readline().split()[1:])
    return (user + nice + system + interrupts + soft) / TICKS, stolen / TICKS


def _cpu_of_descendants(pid: int) -> float:
    """CPU seconds of a process, of its descendants, and of those of them that were waited for."""
    try:
        used = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[11:15]
        children = [
            each for task in Path(f"/proc/{pid}/task").iterdir() for each in (task / "children").read_text().split()
        ]
    except OSError:  # it ended meanwhile
        return 0.0
    return sum(map(int, used)) / TICKS + sum(_cpu_of_descendants(int(child)) for child in children)


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest of ``values`` that ``share`` of them do not exceed."""
    ranked = sorted(values)
    return ranked[min(len(ranked) - 1, int(share * len(ranked)))]


def disk_flush(directory: Path, times: int = 20) -> float:
    """Median seconds in which this disk makes a small write durable: what every durable commit waits for."""
    taken = []
    with tempfile.NamedTemporaryFile(dir=directory) as file:
        for _ in range(times):
            file.write(b"x" * 4096)
            file.flush()
            began = time.perf_counter()
            os.fsync(file.fileno())
            taken.append(time.perf_counter() - began)
    return median(taken)
