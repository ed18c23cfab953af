"""A file that changes on this machine is seen at once; what does not count causes no call. Real Git, a real kernel."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from reconciler.daemon import file_watch
from reconciler.daemon.file_watch import FileWatch, WatchedFiles, watch_file, watch_ref, watch_tree
from tests.support.programs import only_root, tool

MAIN = "refs/heads/main"

MakeWatchedFiles = Callable[[Callable[[], None]], WatchedFiles]


def git(directory: Path, *words: str) -> str:
    identity = ["-c", "user.name=t", "-c", "user.email=t@localhost"]
    ran = subprocess.run(["git", *identity, *words], cwd=directory, check=True, capture_output=True, text=True)
    return ran.stdout.strip()


def new_repository(path: Path, *options: str) -> Path:
    path.mkdir()
    git(path, "init", "--quiet", "--initial-branch=main", *options)
    git(path, "commit", "--quiet", "--allow-empty", "-m", "first")
    return path


def commit_to(repository: Path, ref: str = MAIN) -> None:
    tree = git(repository, "hash-object", "-t", "tree", "-w", "/dev/null")
    git(repository, "update-ref", ref, git(repository, "commit-tree", "-m", "next", tree))


@asynccontextmanager
async def watching(*makers: MakeWatchedFiles) -> AsyncIterator[list[int]]:
    """A watch; yields the list of calls, each as the number of what changed."""
    calls: list[int] = []
    watch = FileWatch()
    await watch.open([make(partial(calls.append, number)) for number, make in enumerate(makers)])
    try:
        yield calls
    finally:
        watch.close()


async def until(reached: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not reached():
            await asyncio.sleep(0.005)


async def change(calls: list[int], make_change: Callable[[], object]) -> None:
    """Make a change, and wait until it is seen."""
    await asyncio.sleep(0.1)
    calls.clear()
    make_change()
    await until(lambda: bool(calls))


def ref(directory: Path, name: str = MAIN) -> MakeWatchedFiles:
    return partial(watch_ref, directory, name)


@pytest.mark.parametrize("bare", [True, False])
async def test_a_commit_is_seen(tmp_path: Path, bare: bool) -> None:
    repository = new_repository(tmp_path / "r")
    directory = repository / ".git"
    if bare:
        git(tmp_path, "clone", "--quiet", "--bare", str(repository), "b.git")
        directory = tmp_path / "b.git"
    async with watching(ref(directory)) as calls:
        for _ in range(3):
            git(repository, "commit", "--quiet", "--allow-empty", "-m", "next")
            if bare:
                await change(calls, lambda: git(repository, "push", "--quiet", str(directory), "main"))
            await until(lambda: bool(calls))
            calls.clear()


async def test_packing_refs_and_the_end_of_a_packed_branch_are_seen(tmp_path: Path) -> None:
    directory = new_repository(tmp_path / "r") / ".git"
    async with watching(ref(directory)) as calls:
        await change(calls, lambda: git(directory, "pack-refs", "--all"))
        await change(calls, lambda: git(directory, "update-ref", "-d", MAIN))
        await change(calls, lambda: commit_to(directory))


async def test_other_branches_and_new_objects_cause_no_call(tmp_path: Path) -> None:
    directory = new_repository(tmp_path / "r") / ".git"
    async with watching(ref(directory)) as calls:
        for name in ("refs/heads/reconciler/status", "refs/heads/other", "refs/tags/v1", "refs/heads/main2"):
            commit_to(directory, name)
            git(directory, "update-ref", "-d", name)
        (directory / "refs" / "heads" / "main.lock").touch()
        (directory / "COMMIT_EDITMSG").write_text("words")
        git(directory, "symbolic-ref", "HEAD", "refs/heads/other")
        (directory / "refs" / "heads" / "main.lock").unlink()
        await asyncio.sleep(4 * file_watch.STEP_SECONDS)
        assert calls == []
        commit_to(directory)
        await until(lambda: bool(calls))
        await asyncio.sleep(4 * file_watch.STEP_SECONDS)
        assert calls == [0], "one commit is one call"


async def test_a_branch_in_new_folders_is_seen(tmp_path: Path) -> None:
    directory = new_repository(tmp_path / "r") / ".git"
    name = "refs/heads/feature/deep/er"
    async with watching(ref(directory, name)) as calls:
        for _ in range(2):
            await change(calls, lambda: git(directory, "update-ref", name, "HEAD"))
            await change(calls, lambda: git(directory, "update-ref", "-d", name))
            git(directory, "pack-refs", "--all", "--prune")
            for folder in ("feature/deep", "feature"):
                shutil.rmtree(directory / "refs" / "heads" / folder, ignore_errors=True)


async def test_the_watch_names_what_changed(tmp_path: Path) -> None:
    first, second = (new_repository(tmp_path / name) / ".git" for name in ("one", "two"))
    async with watching(ref(first), ref(second), ref(second, "refs/heads/other")) as calls:
        await change(calls, lambda: commit_to(second))
        assert set(calls) == {1}
        await change(calls, lambda: commit_to(second, "refs/heads/other"))
        assert set(calls) == {2}


@pytest.fixture
def quick_recheck(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_watch, "RECHECK_SECONDS", 0.05)


@pytest.mark.usefixtures("quick_recheck")
async def test_a_repository_that_goes_and_comes_again_is_watched_again(tmp_path: Path) -> None:
    directory = new_repository(tmp_path / "r") / ".git"
    async with watching(ref(directory)) as calls:
        await change(calls, lambda: shutil.rmtree(tmp_path / "r"))
        await change(calls, lambda: new_repository(tmp_path / "r"))
        await change(calls, lambda: commit_to(directory))


@pytest.mark.usefixtures("quick_recheck")
async def test_what_is_not_there_yet_is_watched_from_when_it_is(tmp_path: Path) -> None:
    directory, file, tree = tmp_path / "r" / ".git", tmp_path / "a" / "b" / "settings.yaml", tmp_path / "certificates"

    def create_file() -> None:
        file.parent.mkdir(parents=True)
        file.write_text("first")

    async with watching(ref(directory), partial(watch_file, file), partial(watch_tree, tree)) as calls:
        await change(calls, lambda: new_repository(tmp_path / "r"))
        await change(calls, lambda: commit_to(directory))
        assert set(calls) == {0}
        await change(calls, create_file)
        assert set(calls) == {1}
        tree.mkdir()
        await change(calls, lambda: (tree / "one").write_text("first"))
        assert set(calls) == {2}


def replace(file: Path, text: str) -> None:
    fresh = file.with_suffix(".new")
    fresh.write_text(text)
    fresh.replace(file)


def swap_link(link: Path, target: str) -> None:
    """As Kubernetes replaces ``..data``."""
    fresh = link.with_name("..data_tmp")
    fresh.symlink_to(target)
    fresh.replace(link)


def mounted(directory: Path) -> Path:
    """A directory as Kubernetes mounts a secret: files are links through ``..data``; returns that link."""
    for version in ("..first", "..second"):
        (directory / version).mkdir(parents=True)
        (directory / version / "password").write_text(version)
    (directory / "..data").symlink_to("..first")
    (directory / "password").symlink_to("..data/password")
    return directory / "..data"


async def test_each_way_to_write_a_file_is_seen(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("first")
    async with watching(partial(watch_file, file)) as calls:
        await change(calls, lambda: file.write_text("second"))
        await change(calls, lambda: file.write_text("second"))
        await change(calls, lambda: replace(file, "third"))
        await change(calls, file.unlink)
        await change(calls, lambda: file.write_text("fourth"))
        calls.clear()
        (tmp_path / "other").write_text("another file")
        await asyncio.sleep(4 * file_watch.STEP_SECONDS)
        assert calls == []


async def test_a_relative_path_is_watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("settings.yaml").write_text("first")
    async with watching(partial(watch_file, Path("settings.yaml"))) as calls:
        await change(calls, lambda: Path("settings.yaml").write_text("second"))


@pytest.mark.parametrize("form", ["file", "tree"])
async def test_files_behind_links_are_seen_when_the_link_changes(tmp_path: Path, form: str) -> None:
    link = mounted(tmp_path / "secret")
    whole = partial(watch_file, tmp_path / "secret" / "password")
    watched = whole if form == "file" else partial(watch_tree, tmp_path / "secret")
    async with watching(watched) as calls:
        for target in ("..second", "..first"):
            await change(calls, lambda: swap_link(link, target))  # noqa: B023 - waited for at once


async def test_a_link_to_another_directory_is_followed(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "settings.yaml").write_text("first")
    (tmp_path / "etc" / "settings.yaml").symlink_to("../real/settings.yaml")
    async with watching(partial(watch_file, tmp_path / "etc" / "settings.yaml")) as calls:
        await change(calls, lambda: (tmp_path / "real" / "settings.yaml").write_text("second"))


async def test_new_files_in_new_folders_are_seen(tmp_path: Path) -> None:
    (tmp_path / "live").mkdir()
    folder = tmp_path / "live" / "example.com"

    def create() -> None:
        folder.mkdir()
        (folder / "fullchain.pem").write_text("first")

    async with watching(partial(watch_tree, tmp_path / "live")) as calls:
        await change(calls, create)
        await change(calls, lambda: (folder / "fullchain.pem").write_text("second"))
        await change(calls, lambda: shutil.rmtree(folder))


async def test_two_names_of_one_directory_are_both_served(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    places = (tmp_path / "real", tmp_path / "link")
    async with watching(*(partial(watch_tree, place) for place in places)) as calls:
        await change(calls, lambda: (tmp_path / "real" / "one").write_text("first"))
        await until(lambda: set(calls) == {0, 1})


async def test_a_file_name_that_watchfiles_cannot_read_ends_no_watch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_watch, "RECHECK_SECONDS", 90.0)
    file = tmp_path / "settings.yaml"
    file.write_text("first")
    with capture_logs() as logged:

        async def scenario() -> None:
            async with watching(partial(watch_file, file)) as calls:
                await asyncio.sleep(0.1)
                Path(os.fsdecode(bytes(tmp_path) + b"/\xff")).touch()
                await until(lambda: bool(logged))
                file.write_text("second")
                await until(lambda: bool(calls))
                await asyncio.sleep(1.2)
                began = time.monotonic()
                await change(calls, lambda: file.write_text("third"))
                assert time.monotonic() - began < 45.0, "the kernel watches it again"

        await scenario()
    assert [line["event"] for line in logged] == ["watch_failed"]
    assert "Unable to decode path" in logged[0]["message"]


OUTSIDE = """
import asyncio, concurrent.futures.thread, os, sys
from pathlib import Path
from reconciler.daemon.file_watch import FileWatch, watch_file, watch_tree

async def main(file):
    seen = asyncio.Event()
    watch = FileWatch()
    await watch.open([watch_tree(file.parent / "closed", print), watch_file(file, seen.set)])
    for text in ("second", "third"):
        await asyncio.sleep(0.1)
        file.write_text(text)
        async with asyncio.timeout(60):
            await seen.wait()
        seen.clear()
        print("seen", flush=True)
    watch.close()

if sys.argv[2:]:
    os.setgroups([])
    os.setuid(int(sys.argv[2]))
asyncio.run(main(Path(sys.argv[1])))
"""
"""A process of its own that watches a file which it changes twice, with the user that is named."""


@pytest.mark.parametrize("limit", ["max_inotify_instances", "max_inotify_watches"])
def test_where_the_kernel_permits_no_watch_files_are_compared(tmp_path: Path, limit: str) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("first")
    script = f'echo 0 >/proc/sys/user/{limit}; exec "$@"'
    inside = [tool("unshare", "util-linux"), "--user", "--map-root-user", "sh", "-c", script, "sh"]
    ran = subprocess.run(
        [*inside, sys.executable, "-c", OUTSIDE, str(file)], capture_output=True, text=True, check=True
    )
    assert ran.stdout == "seen\nseen\n"
    [line] = ran.stderr.splitlines()
    assert "watch_failed" in line
    assert "raise fs.inotify.max_user_instances or max_user_watches" in line


async def test_a_watch_that_is_closed_ends_soon_and_makes_no_call(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    former = set(threading.enumerate())
    async with watching(partial(watch_file, file)) as calls:
        [thread] = [one for one in set(threading.enumerate()) - former if one.name == "file watch"]
        await change(calls, lambda: file.write_text("first"))
        calls.clear()
        file.write_text("second")
    assert not thread.is_alive()
    await asyncio.sleep(0.05)
    assert calls == []


@only_root("no other user can become one who may not read a directory")
def test_a_directory_that_cannot_be_read_ends_no_watch_of_others(tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir(mode=0o700)
    file = tmp_path / "settings.yaml"
    file.write_text("first")
    os.chown(file, 65534, 65534)
    for path in tmp_path.parents[:2]:
        path.chmod(path.stat().st_mode | 0o011)
    tmp_path.chmod(0o755)
    command = [sys.executable, "-c", OUTSIDE, str(file), "65534"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "seen\nseen\n", "")


async def test_nothing_to_watch_is_no_error() -> None:
    async def scenario() -> None:
        async with watching() as calls:
            await asyncio.sleep(0.1)
            assert calls == []

    with capture_logs() as logged:
        await scenario()
    assert logged == []
