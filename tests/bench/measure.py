"""Other programs run and measured: seconds on the clock, seconds of computing, the most memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
AS_INSTALLED = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
"""Who installs a program has it compiled, and is not made to wait for that at each start."""


class Measured(NamedTuple):
    """One run of a program: seconds, and megabytes of its largest process."""

    wall: float
    cpu: float
    peak: float
    output: str

    def note(self) -> str:
        """What a row adds to its figure."""
        return f"{self.cpu:.2f} s of CPU, at most {self.peak:.0f} MB"


class Failed(Exception):
    """A program ended as it should not have."""


def run(
    command: Sequence[str | Path], env: Mapping[str, str] | None = None, codes: Sequence[int] = (0,), cwd: Path = ROOT
) -> Measured:
    """Run ``command`` to its end. Raises Failed, with its last output, where its exit code is not in ``codes``."""
    with tempfile.TemporaryFile() as out:
        began = time.perf_counter()
        child = subprocess.Popen(
            [str(word) for word in command], stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
            env={**AS_INSTALLED, **(env or {})}, cwd=cwd,
        )  # fmt: skip
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
    runs = sorted(run(command, env) for _ in range(times))
    return runs[len(runs) // 2]


def inside(what: str, **arguments: Any) -> tuple[Any, Measured]:
    """What ``tests.bench.inside`` found out in a process of its own, and what the process took."""
    measured = run([sys.executable, "-m", "tests.bench.inside", what, json.dumps(arguments, default=str)])
    return json.loads(measured.output.splitlines()[-1]), measured


class Crowd:
    """How much of this machine others used since this was made: with much of it, figures mean little."""

    def __init__(self) -> None:
        self._began = time.perf_counter()
        self._busy, self._own = machine_cpu(), _own()

    def share(self) -> float:
        """Part of all CPU time, 0 to 1."""
        whole = (time.perf_counter() - self._began) * (os.cpu_count() or 1)
        return max(0.0, machine_cpu() - self._busy - (_own() - self._own)) / whole


def machine_cpu() -> float:
    """CPU seconds that all programs of this machine have used."""
    with open("/proc/stat") as file:
        user, nice, system, _, _, interrupts, soft, *_ = map(int, file.readline().split()[1:])
    return (user + nice + system + interrupts + soft) / os.sysconf("SC_CLK_TCK")


def _own() -> float:
    """CPU seconds of this process and of all that it waited for."""
    return sum(os.times()[:4])


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
