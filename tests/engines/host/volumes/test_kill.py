"""A daemon that is killed at any system call of an operation leaves the state before it, or that after it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, Self

import pytest

from reconciler.engines.host.volumes.layout import VolumeFiles
from reconciler.errors import EngineError
from reconciler.reasons import Reason
from tests.engines.host.volumes.kit import ALL, IMAGES, ONE, OTHER, SET, VOLUME, Disk, disk_with

NEVER = 1 << 30
FEW, SOME, EVERY = 1, 40, NEVER
"""Kills of each operation; one that is begun twice takes longer."""
FORMER = ("before-", "pre-restore-")
"""The names of snapshots of data that were replaced: of what a replica wrote before a restore was repeated, too."""


class VolumeState(NamedTuple):
    """All that operations change."""

    volume: str
    capacity: float
    snapshots: tuple[str, ...]
    content: str
    finals: int


class Killer:
    """A disk, and a process beside it that dies in the middle of operations on it."""

    def __init__(self, disk: Disk) -> None:
        self.disk = disk
        command = [sys.executable, "-m", "tests.engines.host.volumes.killed", str(disk.root), disk.setting]
        self._server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._server.stdout is not None
        assert self._server.stdout.readline() == "ready\n"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.communicate(timeout=60)

    def perform(self, operation: str, last: int = NEVER) -> int:
        """Perform an operation that is killed at its system call ``last``; return how many it has, or -1."""
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.write(f"{operation} {last}\n")
        self._server.stdin.flush()
        return int(self._server.stdout.readline())

    def prepare(self, scene: str) -> VolumeState:
        """A volume in the state that ``scene`` names; another one is removed."""
        self.disk.store.detach(VOLUME, ONE)
        self.disk.store.drop(SET, keep_final_snapshot=False)
        for each in self.disk.store.list_deleted():
            self.disk.store.delete_final_snapshot(each)
        if scene != "missing":
            self.disk.fill(a="1")
            self.disk.snapshot("first")
            self.disk.fill(a="2")
        if scene == "deleted":
            self.disk.store.clear(VOLUME)
        if scene == "attached":
            self.disk.attach()
        return self.view()

    def view(self) -> VolumeState:
        """What the next daemon finds; nothing of an interrupted operation is left."""
        self.disk.reopen()
        assert self.disk.reports == ()
        volumes = self.disk.store.list(SET)
        assert bool(self.disk.leftovers()) == any(volume.holder and "image" in volume.backend for volume in volumes)
        marks = ("partial/", ".part", ".d/final", ".removed", "probe")
        assert [path for path in self.disk.tree() if any(mark in path for mark in marks)] == []
        finals = len(self.disk.store.list_deleted())
        if not volumes:
            assert self.disk.tree() == [] or finals
            return VolumeState("missing", 0, (), "", finals)
        (volume,) = volumes
        readable = volume.state == "ready" and volume.unfinished is None
        content = str(self.content(volume.holder)) if readable else ""
        # To attach an image changes it, so that an interrupted restore snapshots it once more.
        snapshots = tuple(snapshot.name for snapshot in volume.snapshots if not snapshot.name.startswith(FORMER))
        return VolumeState(f"{volume.state} {volume.holder}", volume.capacity, snapshots, content, finals)

    def content(self, holder: str) -> dict[str, str]:
        """The files of the volume, which stays attached to ``holder`` or detached."""
        if not holder:
            return self.disk.content()
        return {each.name: each.read_text() for each in self.disk.attach(holder).iterdir()}


def between(operation: str, before: VolumeState, after: VolumeState) -> set[VolumeState]:
    """The states in which an interrupted operation may leave a volume, beside the first and the last."""
    if operation == "restore":
        return {before._replace(snapshots=after.snapshots)}
    if operation == "drop":
        return {before._replace(volume="deleted ", content="", finals=after.finals)}
    return set()


SCENES = {
    "attach": ("missing", "deleted", "detached"),
    "detach": ("attached",),
    "grow": ("detached", "attached"),
    "snapshot": ("detached", "attached"),
    "delete_snapshot": ("detached", "attached"),
    "restore": ("detached", "deleted"),
    "clear": ("detached",),
    "drop": ("detached",),
}
"""Operation → the states of the volume in which it begins."""


def kill_at(killer: Killer, operation: str, scene: str, kills: int) -> None:
    """Kill ``operation`` at each of its system calls, or at ``kills`` of them; it is repeated after each kill."""
    before = killer.prepare(scene)
    total = killer.perform(operation)
    after = killer.view()
    allowed = {before, after} | between(operation, before, after)
    view, step = after, max(1, total // kills)
    for last in range(1 + step // 2, total + 1, step):
        if view != before:
            assert killer.prepare(scene) == before
        done = killer.perform(operation, last)
        view = killer.view()
        assert done == -1 or view == after, "the number of system calls varies a little"
        assert view in allowed, f"killed at system call {last} of {total}"
        if view != after:
            assert killer.perform(operation) > 0
            view = killer.view()
            assert view == after, f"repeated after system call {last} of {total}"


@contextmanager
def killer(path: Path, setting: str) -> Iterator[Killer]:
    with disk_with(setting, path) as disk, Killer(disk) as found:
        yield found
        disk.store.detach(VOLUME, ONE)


@pytest.mark.parametrize("setting", ["directory"])
def test_killed_at_some_system_calls(tmp_path: Path, setting: str) -> None:
    with killer(tmp_path, setting) as found:
        for operation, scenes in SCENES.items():
            kill_at(found, operation, scenes[0], FEW)


@pytest.mark.slow
@pytest.mark.parametrize("setting", ALL)
@pytest.mark.parametrize("operation", SCENES)
def test_killed_at_every_system_call(tmp_path: Path, setting: str, operation: str) -> None:
    with killer(tmp_path, setting) as opened:
        for scene in SCENES[operation]:
            if setting == "directory" and (operation, scene) == ("snapshot", "attached"):
                continue
            kill_at(opened, operation, scene, EVERY)


def write_late(disk: Disk) -> bool:
    """Write a file as a replica does that starts before a command is repeated; False if it does not get the volume."""
    try:
        path = disk.attach(OTHER)
    except EngineError as error:
        if error.reason != Reason.VOLUME_IN_USE or "has an unfinished" not in str(error):
            raise
        return False
    (path / "late").write_text("x")
    disk.store.detach(VOLUME, OTHER)
    return True


def kill_command(killer: Killer, command: str, scene: str, kills: int) -> None:
    """Kill a command on a volume, start a replica before it is repeated, and find what that wrote.

    It gets the volume before the command begins, which then replaces what it wrote, and after it is done.
    """
    files, disk = VolumeFiles(killer.disk.root, "shop", "data", "0"), killer.disk
    before = killer.prepare(scene)
    total = killer.perform(command)
    after = killer.view()
    step, refusals = max(1, total // kills), 0
    for last in range(1 + step // 2, total + 1, step):
        assert killer.prepare(scene) == before
        killer.perform(command, last)
        disk.reopen()
        recorded = files.read_command()
        begun, done = recorded is not None, recorded is not None and recorded.done
        written = write_late(disk)
        assert written == (done or not begun), f"killed at system call {last} of {total}"
        refusals += not written
        assert killer.perform(command) > 0
        volume_state = killer.view()
        if done:
            assert "'late': 'x'" in volume_state.content, f"killed at system call {last} of {total}"
        else:
            assert volume_state == after, f"repeated after system call {last} of {total}"
    assert refusals


@pytest.mark.parametrize("command", ["deleteVolume", "restoreVolume"])
def test_a_replica_gets_no_volume_with_an_unfinished_command(tmp_path: Path, command: str) -> None:
    with killer(tmp_path, "directory") as found:
        kill_command(found, command, "detached", FEW)


@pytest.mark.slow
@pytest.mark.parametrize("setting", ALL)
@pytest.mark.parametrize("command", ["deleteVolume", "restoreVolume"])
def test_no_replica_loses_what_it_writes_before_a_command_is_repeated(
    tmp_path: Path, setting: str, command: str
) -> None:
    with killer(tmp_path, setting) as found:
        for scene in ("detached", "deleted"):
            kill_command(found, command, scene, SOME)


@pytest.mark.slow
@pytest.mark.parametrize("setting", IMAGES)
def test_killed_while_the_file_system_grows(tmp_path: Path, setting: str) -> None:
    with killer(tmp_path, setting) as opened:
        disk, total = opened.disk, 10
        last = 0
        while last <= total:
            opened.prepare("detached")
            assert disk.store.grow(VOLUME, disk.capacity * 2)
            done = opened.perform("attach", last or NEVER)
            total = done if last == 0 else total
            disk.reopen()
            assert disk.reports == ()
            path = disk.attach()
            size = os.statvfs(path).f_blocks * os.statvfs(path).f_frsize
            assert size > disk.capacity * 1.5 * (1 << 30)
            assert (path / "a").read_text() == "2"
            disk.store.detach(VOLUME, ONE)
            image = disk.root / "volumes/shop/data/0.d/image"
            # It has to create lost+found again, and repairs nothing that needs a decision.
            check = ["e2fsck", "-f", "-p"] if setting == "image-ext4" else ["xfs_repair", "-n"]
            checked = subprocess.run([*check, image], check=False, capture_output=True, text=True)
            assert checked.returncode <= 1, checked.stdout + checked.stderr
            last += 3
