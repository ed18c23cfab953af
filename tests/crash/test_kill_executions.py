"""A daemon is killed amid executions of a cron workload: each command starts one program, never two, never none."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import pytest

from tests.crash.daemon_on_host import POINTS
from tests.support.host_sandbox import HostSandbox, host_sandbox, shared_folder
from tests.support.sandbox import eventually

wait = partial(eventually, patience=90.0)
KEY = "workload/shop/job"


def job(marks: Path) -> str:
    """A cron workload whose programs write down their names."""
    container = {"name": "main", "image": "none", "command": "sh", "args": ["-c", f"echo $HOSTNAME >>{marks}"]}
    spec = {"type": "cron", "containers": [container], "job": {"schedule": "0 0 29 2 *", "historyLimit": 10}}
    return json.dumps({"kind": "workload", "name": "job", "gvc": "shop", "spec": spec}) + "\n"


@pytest.fixture
def sandbox(tmp_path: Path) -> Iterator[HostSandbox]:
    """One with the cron workload applied."""
    with host_sandbox(
        tmp_path, {"shop/job.yaml": job(shared_folder(tmp_path) / "marks")}, host={"terminationScale": 0.01}
    ) as sandbox:
        with sandbox.daemon() as daemon:
            wait(lambda: f"{KEY}@here" in sandbox.recorded(), "it is applied")
            assert daemon.stop() == 0
        yield sandbox


def executions(sandbox: HostSandbox) -> list[tuple[str, str]]:
    """Name and status of each execution, as recorded."""
    state = json.loads(sandbox.recorded()[f"{KEY}@here"].state)
    return [(each["name"], each["status"]) for each in state["status"]["jobExecutions"]]


def done(sandbox: HostSandbox, count: int) -> bool:
    """Whether ``count`` executions ended, and nothing is left of their replicas."""
    return [status for _, status in executions(sandbox)] == ["Success"] * count and not sandbox.replicas("job")


def go_through(sandbox: HostSandbox, points: Sequence[str]) -> Counter[str]:
    """Request an execution for each of the points, at which a daemon dies; the points where one did."""
    died: Counter[str] = Counter()
    for count, point in enumerate(points, 1):
        asked = sandbox.run("command", KEY, "runCronWorkload", "--no-wait")
        assert asked.returncode == 0, asked.stderr
        with sandbox.daemon("-m", "tests.crash.daemon_on_host", point) as daemon:
            process = daemon.process
            wait(lambda it=process, number=count: it.poll() is not None or done(sandbox, number), "it dies or is idle")
            died[point.partition(":")[0]] += process.poll() is not None
    with sandbox.daemon() as daemon:
        wait(lambda: done(sandbox, len(points)), "all executions ended")
        assert daemon.stop() == 0
    marks = (shared_folder(sandbox.path) / "marks").read_text().split()
    assert sorted(marks) == sorted(name for name, _ in executions(sandbox))
    return died


def test_a_command_starts_one_program_wherever_the_daemon_dies(sandbox: HostSandbox) -> None:
    assert go_through(sandbox, ["recorded:1", "started:1"]) == {"recorded": 1, "started": 1}


@pytest.mark.slow
@pytest.mark.parametrize("point", ["record", "save", "saved", "start", "started", "remove", "removed", "forget"])
def test_a_command_starts_one_program_at_every_point(sandbox: HostSandbox, point: str) -> None:
    assert go_through(sandbox, [f"{point}:{number}" for number in (1, 2, 1)]).total() >= 2


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_a_command_starts_one_program_at_random_points(sandbox: HostSandbox, seed: int) -> None:
    chance = random.Random(seed)
    go_through(sandbox, [f"{chance.choice(POINTS)}:{chance.randint(1, 6)}" for _ in range(8)])
