"""A ref that moves on this machine is seen at once; what does not count causes no wake-up. Real Git."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from reconciler.daemon import ref_watch
from reconciler.daemon.ref_watch import watch_refs

STATUS = "refs/heads/reconciler/status"


def git(directory: Path, *words: str) -> str:
    identity = ["-c", "user.name=t", "-c", "user.email=t@localhost"]
    ran = subprocess.run(["git", *identity, *words], cwd=directory, check=True, capture_output=True, text=True)
    return ran.stdout.strip()


def new_repository(path: Path, *options: str) -> Path:
    path.mkdir()
    git(path, "init", "--quiet", "--initial-branch=main", *options)
    git(path, "commit", "--quiet", "--allow-empty", "-m", "first")
    return path


def commit_to(repository: Path, ref: str = "refs/heads/main") -> None:
    tree = git(repository, "hash-object", "-t", "tree", "-w", "/dev/null")
    git(repository, "update-ref", ref, git(repository, "commit-tree", "-m", "next", tree))


@asynccontextmanager
async def watching(*paths: Path) -> AsyncIterator[list[Path]]:
    """A running watch that is known to see changes; yields the list of calls, empty at first."""
    calls: list[Path] = []
    stop = asyncio.Event()
    task = asyncio.create_task(watch_refs(paths, stop, calls.append, [STATUS]))
    for path in paths:
        if (path / "refs").is_dir():
            for name in ("HEAD", "refs/probe"):
                await poked(path / name, calls)
    calls.clear()
    yield calls
    stop.set()
    await asyncio.wait_for(task, 5)


async def poked(file: Path, calls: list[Path]) -> None:
    """Write ``file`` until the watch is set up and reports it, then wait until it is silent."""
    before, content = len(calls), file.read_bytes() if file.exists() else b""
    while len(calls) == before:
        file.write_bytes(content)
        await asyncio.sleep(0.05)
    if file.name == "probe":
        file.unlink()
    await asyncio.sleep(0.1)


async def until(reached: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not reached():
            await asyncio.sleep(0.005)


@pytest.mark.parametrize("bare", [True, False])
def test_a_commit_is_seen(tmp_path: Path, bare: bool) -> None:
    repository = new_repository(tmp_path / "r")
    directory = repository / ".git"
    if bare:
        git(tmp_path, "clone", "--quiet", "--bare", str(repository), "b.git")
        directory = tmp_path / "b.git"

    async def scenario() -> None:
        async with watching(directory) as calls:
            if bare:
                git(repository, "commit", "--quiet", "--allow-empty", "-m", "next")
                git(repository, "push", "--quiet", str(directory), "main")
            else:
                git(repository, "commit", "--quiet", "--allow-empty", "-m", "next")
            await until(lambda: bool(calls))
            assert set(calls) == {directory}

    asyncio.run(scenario())


def test_packing_refs_and_switching_branches_are_seen(tmp_path: Path) -> None:
    directory = new_repository(tmp_path / "r") / ".git"
    git(directory, "branch", "other")

    async def scenario() -> None:
        async with watching(directory) as calls:
            git(directory, "symbolic-ref", "HEAD", "refs/heads/other")
            await until(lambda: bool(calls))
            calls.clear()
            git(directory, "pack-refs", "--all")
            await until(lambda: bool(calls))

    asyncio.run(scenario())


def test_the_status_branch_and_new_objects_cause_no_wake_up(tmp_path: Path) -> None:
    directory = new_repository(tmp_path / "r") / ".git"

    async def scenario() -> None:
        async with watching(directory) as calls:
            for _ in range(3):
                commit_to(directory, STATUS)
            (directory / "refs" / "heads" / "main.lock").touch()
            (directory / "COMMIT_EDITMSG").write_text("words")
            # The events are in order: had these counted, the calls would have come before that of HEAD.
            (directory / "HEAD").write_bytes((directory / "HEAD").read_bytes())
            await until(lambda: bool(calls))
            assert calls == [directory]
            calls.clear()
            (directory / "refs" / "heads" / "main.lock").unlink()
            commit_to(directory)
            await until(lambda: bool(calls))

    asyncio.run(scenario())


def test_a_branch_in_new_folders_is_seen_even_beside_the_status_branch(tmp_path: Path) -> None:
    directory = new_repository(tmp_path / "r") / ".git"

    async def scenario() -> None:
        async with watching(directory) as calls:
            for ref in ("refs/heads/feature/deep/er", "refs/heads/reconciler/other"):
                for words in (("update-ref", ref, "HEAD"), ("update-ref", "-d", ref)):
                    calls.clear()
                    git(directory, *words)
                    await until(lambda: bool(calls))

    asyncio.run(scenario())


def test_the_watch_names_the_repository_that_moved(tmp_path: Path) -> None:
    first, second = (new_repository(tmp_path / name) / ".git" for name in ("one", "two"))

    async def scenario() -> None:
        async with watching(first, second) as calls:
            commit_to(second)
            await until(lambda: bool(calls))
            assert set(calls) == {second}

    asyncio.run(scenario())


def test_a_repository_that_goes_and_comes_again_is_watched_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ref_watch, "_RECHECK_SECONDS", 0.05)
    directory = new_repository(tmp_path / "r") / ".git"

    async def scenario() -> None:
        async with watching(directory) as calls:
            shutil.rmtree(tmp_path / "r")
            await asyncio.sleep(0.15)
            new_repository(tmp_path / "r")
            await until(lambda: bool(calls))
            await poked(directory / "refs" / "probe", calls)
            calls.clear()
            commit_to(directory)
            await until(lambda: bool(calls))

    asyncio.run(scenario())


def test_a_repository_that_is_not_there_yet_is_watched_from_when_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ref_watch, "_RECHECK_SECONDS", 0.05)

    async def scenario() -> None:
        async with watching(tmp_path / "r" / ".git") as calls:
            await asyncio.sleep(0.1)
            assert calls == []
            new_repository(tmp_path / "r")
            await until(lambda: bool(calls))

    asyncio.run(scenario())


def test_a_cancelled_watch_ends(tmp_path: Path) -> None:
    directory = new_repository(tmp_path / "r") / ".git"

    async def scenario() -> None:
        task = asyncio.create_task(watch_refs([directory], asyncio.Event(), print))
        await asyncio.sleep(0.1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(task, 5)

    asyncio.run(scenario())
