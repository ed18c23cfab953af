"""CPU seconds of each test, with those of its children: `pytest -p tests.support.cpu`, or `make test-cpu`.

`python -m tests.support.cpu SECONDS COMMAND ...` runs a command and prints what it used beside its budget. Where CI is
set, more than ``TOLERANCE`` times the budget is an error, which names the dearest folders and tests.

Wall time depends on what else the machine does; CPU time does less. On a machine that others share, it does still: the
same tests took 691 and 864 seconds. So the budget is that of the pace of the machine, before the command and after it.
A process that outlives its parent is not counted, and a fixture of wider scope counts for the first test that uses it.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Generator
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from tests.support.pace import slowness

TICKS = os.sysconf("SC_CLK_TCK")

SHOWN = 60
"""How many tests the summary lists."""

TOLERANCE = 1.3
"""How much more than the budget CI takes: machines differ."""

SAMPLES = 20
"""How often the pace is measured, before the command and after it: 40 ms each."""

FILE = "TEST_CPU_FILE"
"""The variable that names the file to which the seconds of each test are written."""

COUNTED: set[int] = set()
"""Processes that another one forked for this one, which count as its children while they run."""


def cpu_seconds() -> float:
    """User and system time of this process, of its children, and of theirs that ended."""
    ended = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = sum(each.ru_utime + each.ru_stime for each in ended)
    children = [str(pid) for pid in COUNTED]
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):  # a thread that ends meanwhile
            children += (task / "children").read_text().split()
    for child in children:
        with contextlib.suppress(OSError):  # a child that ends meanwhile
            fields = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()
            seconds += sum(map(int, fields[11:15])) / TICKS
    return seconds


class Meter:
    """Adds to the reports of a test what it used."""

    def __init__(self) -> None:
        self._last = cpu_seconds()
        self.by_test: Counter[str] = Counter()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logstart(self) -> None:
        self._last = cpu_seconds()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, Any, Any]:
        report = yield
        # Asking takes 0.1 ms: a call is counted with its setup.
        if report.when != "setup" or not report.passed:
            now = cpu_seconds()
            report.cpu, self._last = now - self._last, now
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.by_test[report.nodeid] += getattr(report, "cpu", 0.0)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if not self.by_test:
            return
        by_file: Counter[str] = Counter()
        for name, used in self.by_test.items():
            by_file[name.partition("::")[0]] += used
        terminalreporter.section("CPU seconds")
        for title, counted in (("test", self.by_test), ("file", by_file)):
            terminalreporter.write_line(f"by {title}")
            for name, used in counted.most_common(SHOWN):
                terminalreporter.write_line(f"{used:8.2f}  {name}")
        terminalreporter.write_line(f"{sum(by_file.values()):8.2f}  in tests, {cpu_seconds():.2f} in all")
        if out := os.environ.get(FILE):
            Path(out).write_text(json.dumps({"total": cpu_seconds(), "tests": self.by_test}))


def main(budget: str, *command: str) -> int:
    """Run ``command``, print what it used beside ``budget`` seconds, and return its exit code, in CI 1 if over it."""
    paces = [slowness() for _ in range(SAMPLES)]
    began = cpu_seconds()
    with tempfile.NamedTemporaryFile() as file:
        code = subprocess.run(command, check=False, env=os.environ | {FILE: file.name}).returncode
        measured = file.read()
    used = cpu_seconds() - began
    pace = median([*paces, *(slowness() for _ in range(SAMPLES))])
    print(f"CPU: {used:.0f} s, budget {budget} s, at {pace:.2f} times the time of a quiet machine")
    if not os.environ.get("CI") or used <= TOLERANCE * pace * float(budget):
        return code
    print(f"This is more than {TOLERANCE} times the budget there. {_name_dearest(measured)}", file=sys.stderr)
    return code or 1


def _name_dearest(measured: bytes) -> str:
    """A sentence with the dearest folders and tests; ``measured`` is the content of the file."""
    if not measured:
        return "`make test-cpu` lists the dearest tests."
    tests = Counter(json.loads(measured)["tests"])
    folders: Counter[str] = Counter()
    for name, used in tests.items():
        folders["/".join(name.split("/")[:2])] += used
    lists = (", ".join(f"{name} ({used:.1f} s)" for name, used in each.most_common(5)) for each in (folders, tests))
    return "The dearest are the folders {}, and the tests {}.".format(*lists)


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Meter())


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
