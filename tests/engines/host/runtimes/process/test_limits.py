"""Limits are real where control groups may be made; usage is reported either way."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from reconciler.engines.host.runtimes import cgroups
from reconciler.engines.host.runtimes.process import cgroup_tree
from tests.engines.host.runtimes.process.kit import KEY, both_ways, marked, opened, place, shell, sleeping, with_groups
from tests.support.waiting import until

EATS = "kept = []\nwhile True:\n    kept.append(bytearray(b'x' * 1_000_000))\n"


@with_groups
async def test_a_container_over_its_memory_limit_is_ended_with_a_reason(tmp_path: Path) -> None:
    async with opened(tmp_path) as host:
        await host.runtime.start(shell('exec python3 -c "$CODE"', env={**os.environ, "CODE": EATS}, cpu=2000))
        ended = await host.over()
        assert (ended.code, ended.reason) == (137, "OutOfMemory")
        host.ended.clear()
        await host.runtime.start(shell("kill -KILL $$"))
        ended = await host.over()
        assert (ended.code, ended.reason) == (137, "Error")


@with_groups
async def test_a_container_that_forks_without_end_stops_at_its_limit(tmp_path: Path) -> None:
    async with opened(tmp_path) as host:
        tree = cgroup_tree.find_cgroup_tree("reconciler-test", cgroups.list_mounts())
        if tree is None or not tree.pids:
            pytest.skip("no controller of processes may be used here")
        await host.runtime.start(shell('exec python3 -c "$CODE"', env={**os.environ, "CODE": FORKS}, processes=20))
        assert 10 < await host.number() < 20


FORKS = """
import os, time
count = 0
try:
    while count < 100:
        if not os.fork():
            time.sleep(1000)
        count += 1
except BlockingIOError:
    pass
print(count, flush=True)
time.sleep(1000)
"""


@with_groups
async def test_a_later_kill_is_not_reported_as_out_of_memory(tmp_path: Path) -> None:
    async with opened(tmp_path) as host:
        await host.runtime.start(
            shell('python3 -c "$CODE"; echo $?; sleep 1000', env={**os.environ, "CODE": EATS}, cpu=2000)
        )
        await host.wrote("137\n")
        await host.runtime.signal(place(), signal.SIGKILL)
        ended = await host.over()
        assert (ended.code, ended.reason) == (137, "Error")


@with_groups
async def test_the_share_of_the_cpu_is_limited_for_all_that_runs_in_a_container(tmp_path: Path) -> None:
    async with opened(tmp_path) as host:
        await host.runtime.start(shell("echo $$; exec sleep 1000", cpu=1500, memory=64 * 2**20))
        await host.number()
        beside = asyncio.create_task(host.runtime.exec(place(), ["sleep", "1000"], 900))
        await until(lambda: len(sleeping(tmp_path)) == 2, "the program beside")
        groups = {group for pid in marked(tmp_path) for group in cgroup_tree.groups_of(pid)}
        texts = {
            path.name: path.read_text().strip()
            for group in groups
            for path in Path(group).iterdir()
            if path.name in ASKED
        }
        assert texts in (V1, V2)
        assert all(cgroups.list_members([group]) == set(marked(tmp_path)) for group in groups)
        beside.cancel()
        await host.runtime.remove(KEY, "r")
        assert not any(Path(group).exists() for group in groups)
    assert not any(Path(group).parent.exists() for group in groups)


V1 = {"cpu.cfs_quota_us": "150000", "cpu.cfs_period_us": "100000", "memory.limit_in_bytes": str(64 * 2**20)}
V2 = {"cpu.max": "150000 100000", "memory.max": str(64 * 2**20)}
ASKED = V1.keys() | V2.keys()


@pytest.mark.parametrize(
    ("files", "quota"),
    [
        ({"cpu.max": "max 100000"}, {"cpu.max": "20000 100000"}),
        (
            {"cpu.cfs_quota_us": "-1", "cpu.cfs_period_us": "50000"},
            {"cpu.cfs_quota_us": "20000", "cpu.cfs_period_us": "100000"},
        ),
    ],
)
def test_a_quota_is_set_in_the_group_that_has_one(tmp_path: Path, files: dict[str, str], quota: dict[str, str]) -> None:
    group, other = tree(tmp_path / "cpu", files), tree(tmp_path / "pids", {"pids.max": "max"})
    assert cgroups.set_quota([str(other), str(group)], 200)
    assert {path.name: path.read_text() for path in group.iterdir()} == quota
    assert not cgroups.set_quota([str(other), str(tmp_path / "gone")], 200)
    assert [path.name for path in other.iterdir()] == ["pids.max"]


@both_ways
async def test_usage_is_that_of_all_processes_of_a_container(tmp_path: Path, limited: bool) -> None:
    burns = "import os, time\nos.fork()\nkept = bytearray(b'x' * 20_000_000)\nwhile True: pass\n"
    async with opened(tmp_path, limited=limited) as host:
        await host.runtime.start(shell('python3 -c "$CODE"', env={**os.environ, "CODE": burns}, cpu=2000))
        await host.runtime.start(shell("echo $$; exec sleep 1000", of=place("idle")))
        await host.number(place("idle"))
        while (usage := await host.runtime.stats())[place()].cpu_seconds < 0.5:
            await asyncio.sleep(0.05)
        assert usage[place()].memory > 40_000_000
        assert usage[place("idle")].cpu_seconds < 0.4
        assert usage[place("idle")].memory < 20_000_000
        again = await host.runtime.stats()
        assert again[place()].cpu_seconds >= usage[place()].cpu_seconds
        await host.runtime.signal(place(), signal.SIGKILL)
        await host.over()
        assert list(await host.runtime.stats()) == [place("idle")]


def tree(root: Path, files: dict[str, str]) -> Path:
    """A file system as a kernel would show it, as far as it matters."""
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def unified(root: Path, own: str, **files: str) -> list[cgroups.MountedHierarchy]:
    """A host with version 2, the daemon in ``own``; the top and what is above the daemon is divided."""
    lines = f"30 24 0:27 / {root}/fs rw,relatime - cgroup2 cgroup2 rw\n"
    tree(root, {"proc/self/cgroup": f"0::{own}\n", "proc/self/mountinfo": lines})
    tree(
        root / "fs",
        {
            "cgroup.controllers": "cpu memory pids",
            **{name.replace("__", "/").replace("_", "."): text for name, text in files.items()},
        },
    )
    return cgroups.list_mounts(proc=root / "proc")


DIVIDED = {"cgroup.procs": "", "cgroup.subtree_control": "cpu memory pids"}


def divided(root: Path, *groups: str) -> None:
    """Make groups below which there are others with limits."""
    for group in groups:
        tree(root / "fs" / group, DIVIDED)


def base(root: Path, found: list[cgroups.MountedHierarchy]) -> str | None:
    """Where groups would be made, below the top."""
    hierarchy = cgroup_tree.find_cgroup_tree("reconciler-x", found)
    return None if hierarchy is None else str(hierarchy.bases[0].relative_to(root / "fs"))


def test_the_nearest_divided_group_above_the_daemon_is_taken(tmp_path: Path) -> None:
    divided(tmp_path, ".", "user.slice", "user.slice/user@1000.service")
    tree(
        tmp_path / "fs/user.slice/user@1000.service/app.slice/reconciler.service",
        {"cgroup.procs": "1", "memory.max": "max", "cpu.max": "max 100000"},
    )
    tree(
        tmp_path / "fs/user.slice/user@1000.service/app.slice", {"cgroup.procs": "", "cgroup.subtree_control": "memory"}
    )
    found = unified(tmp_path, "/user.slice/user@1000.service/app.slice/reconciler.service")
    assert base(tmp_path, found) == "user.slice/user@1000.service/reconciler-x"


@pytest.mark.parametrize("limit", [{"memory.max": "1000000"}, {"memory.high": "1000000"}, {"cpu.max": "50000 100000"}])
def test_a_limit_on_the_daemon_is_never_left(tmp_path: Path, limit: dict[str, str]) -> None:
    divided(tmp_path, ".", "system.slice")
    tree(tmp_path / "fs/system.slice/reconciler.service", {"cgroup.procs": "1", **limit})
    assert base(tmp_path, unified(tmp_path, "/system.slice/reconciler.service")) is None


def test_a_group_of_the_daemons_own_is_never_divided(tmp_path: Path) -> None:
    tree(tmp_path / "fs/system.slice/reconciler.service", {"cgroup.procs": "1", "cgroup.subtree_control": ""})
    assert base(tmp_path, unified(tmp_path, "/system.slice/reconciler.service")) is None


def test_at_the_very_top_processes_and_groups_go_together(tmp_path: Path) -> None:
    assert base(tmp_path, unified(tmp_path, "/")) == "reconciler-x"


def test_at_the_top_of_a_container_they_do_not(tmp_path: Path) -> None:
    tree(tmp_path / "fs", {"cgroup.type": "domain"})
    assert base(tmp_path, unified(tmp_path, "/")) is None


def test_a_hierarchy_without_both_controllers_is_none(tmp_path: Path) -> None:
    assert base(tmp_path, unified(tmp_path, "/", cgroup_controllers="hugetlb")) is None


def version_1(root: Path, own: str) -> list[cgroups.MountedHierarchy]:
    """A host with version 1 for what is limited, and version 2 for the service manager alone."""
    line = "3{0} 24 0:2{0} / {1}/{2} rw - cgroup cgroup rw,{2}\n"
    lines = "".join(line.format(number, root, name) for number, name in enumerate(("cpu,cpuacct", "memory", "pids")))
    lines += f"40 24 0:40 / {root}/unified rw - cgroup2 cgroup2 rw\n"
    belongs = f"4:memory:{own}\n3:cpu,cpuacct:{own}\n2:pids:/\n0::/init.scope\n"
    tree(root, {"proc/self/cgroup": belongs, "proc/self/mountinfo": lines, "unified/cgroup.controllers": ""})
    for name in ("cpu,cpuacct", "memory"):
        (root / name / own.strip("/")).mkdir(parents=True, exist_ok=True)
    return cgroups.list_mounts(proc=root / "proc")


@pytest.mark.parametrize("own", ["/", "/docker/1234"])
def test_version_1_has_groups_below_those_of_the_daemon(tmp_path: Path, own: str) -> None:
    hierarchy = cgroup_tree.find_cgroup_tree("reconciler-x", version_1(tmp_path, own))
    assert hierarchy is not None
    inside = own.strip("/")
    assert hierarchy.bases == (
        tmp_path / "cpu,cpuacct" / inside / "reconciler-x",
        tmp_path / "memory" / inside / "reconciler-x",
    )


def test_a_hierarchy_that_may_not_be_written_to_is_none(tmp_path: Path) -> None:
    found = version_1(tmp_path, "/docker/1234")
    (tmp_path / "memory/docker/1234").rmdir()
    assert cgroup_tree.find_cgroup_tree("reconciler-x", found) is None


def test_a_host_without_any_hierarchy_has_none(tmp_path: Path) -> None:
    assert cgroups.list_mounts(proc=tmp_path / "proc") == []
    assert cgroup_tree.find_cgroup_tree("reconciler-x", []) is None
