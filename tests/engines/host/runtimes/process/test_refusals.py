"""A container that cannot start reports why before anything starts, and reveals no secret."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
from glob import glob
from pathlib import Path

import msgspec
import pytest

from reconciler.engines.host.runtimes.process.cgroup_tree import name_for
from reconciler.engines.host.runtimes.protocol import ContainerStart
from reconciler.errors import EngineError
from tests.engines.host.runtimes.process.kit import as_root, launch, marked, opened, place, shell
from tests.support.programs import small_disk

SECRET = {"PASSWORD": "hunter2"}


def refused(root: Path, asked: ContainerStart) -> EngineError:
    """How the runtime refuses to start; nothing runs after it, and the next start is fine."""

    async def story() -> EngineError:
        async with opened(root) as host:
            with pytest.raises(EngineError) as error:
                await host.runtime.start(asked)
            assert marked(root) == []
            assert await host.runtime.list() == []
            # Groups of others come and go meanwhile: unlike Path.glob, glob ignores a folder that has vanished.
            assert not glob(f"/sys/fs/cgroup/**/{name_for(root)}/*.main.*", recursive=True)
            return error.value

    error = asyncio.run(story())
    assert "hunter2" not in str(error)
    return error


def test_no_command(tmp_path: Path) -> None:
    error = refused(tmp_path, launch("", env=SECRET))
    assert (error.reason, error.retry) == ("NoCommand", False)
    assert "main" in str(error)


def test_a_program_in_no_directory_of_the_path(tmp_path: Path) -> None:
    error = refused(tmp_path, launch("no-such-program", env={**SECRET, "PATH": "/usr/bin:/bin"}))
    assert (error.reason, error.retry) == ("ProgramNotFound", True)
    assert str(error) == "the program no-such-program is in no directory of PATH (/usr/bin:/bin)"


def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    error = refused(tmp_path, launch("/no/such/program", env=SECRET))
    assert (error.reason, str(error)) == ("ProgramNotFound", "the program /no/such/program does not exist")


def test_a_program_without_the_right_to_run(tmp_path: Path) -> None:
    (tmp_path / "program").write_text("#!/bin/sh\n")
    error = refused(tmp_path / "state", launch("program", env={**SECRET, "PATH": str(tmp_path)}))
    assert (error.reason, str(error)) == ("NotPermitted", f"the program {tmp_path}/program may not be executed")


def test_a_directory_is_no_program(tmp_path: Path) -> None:
    assert refused(tmp_path / "state", launch(str(tmp_path))).reason == "ProgramNotFound"


@as_root
@pytest.mark.parametrize(("file", "folder"), [(0o700, 0o755), (0o755, 0o700)])
def test_a_program_that_its_user_may_not_run(tmp_path: Path, file: int, folder: int) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        program = Path(name, "program")
        program.write_text("#!/bin/sh\n")
        program.chmod(file)
        Path(name).chmod(folder)
        error = refused(tmp_path, msgspec.structs.replace(launch(str(program)), user=12345))
    assert (error.reason, str(error)) == ("NotPermitted", f"the program {program} may not be executed")


@as_root
def test_a_directory_that_its_user_may_not_enter(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    error = refused(tmp_path / "state", shell(":", user=12345, directory=str(tmp_path)))
    assert (error.reason, str(error)) == ("NotPermitted", f"the working directory {tmp_path} may not be entered")


def test_a_directory_that_is_not_there(tmp_path: Path) -> None:
    error = refused(tmp_path, shell(":", directory="/no/such/place"))
    assert (error.reason, str(error)) == ("DirectoryNotFound", "the working directory /no/such/place does not exist")


def test_arguments_that_are_more_than_the_kernel_takes(tmp_path: Path) -> None:
    error = refused(tmp_path, launch("echo", *(["x" * 100_000] * 100), env=SECRET))
    assert (error.reason, str(error)) == ("StartFailed", "main cannot be started: Argument list too long")


def test_a_text_that_no_program_can_receive_is_refused(tmp_path: Path) -> None:
    error = refused(tmp_path, launch("echo", "a\0b", env=SECRET))
    assert (error.reason, error.retry) == ("StartFailed", False)


async def test_a_start_fails_on_a_full_disk_and_works_when_there_is_room(tmp_path: Path) -> None:
    async with opened(tmp_path) as host:
        folder = host.runtime.output(place()).parent
        folder.mkdir(parents=True)
        (folder / "code").symlink_to("/dev/full")
        with pytest.raises(EngineError, match="no room to start main: No space left on device") as full:
            await host.runtime.start(shell("exit 4"))
        assert (full.value.reason, full.value.retry) == ("DiskFull", True)
        assert marked(tmp_path) == []
        (folder / "code").unlink()
        await host.runtime.start(shell("exit 4"))
        assert (await host.over()).code == 4


async def test_a_disk_that_fills_up_while_the_start_is_written_down(tmp_path: Path) -> None:
    async with opened(tmp_path) as host:
        folder = host.runtime.output(place()).parent
        folder.mkdir(parents=True)
        (folder / "record.json.new").symlink_to("/dev/full")
        with pytest.raises(EngineError, match="no room"):
            await host.runtime.start(shell(f"touch {tmp_path}/ran"))
        assert marked(tmp_path) == []
        assert not (tmp_path / "ran").exists()


@as_root
async def test_the_code_is_recorded_though_the_disk_is_full_by_then(tmp_path: Path) -> None:
    async def story() -> None:
        async with opened(small) as host:
            await host.runtime.start(shell(f"echo; until [ -e {tmp_path}/go ]; do sleep 0.01; done; exit 9"))
            await host.wrote("\n")
            with pytest.raises(OSError, match="No space left"):
                (small / "filler").write_bytes(bytes(1 << 20))
            (tmp_path / "go").touch()
            assert (await host.over()).code == 9

    with small_disk(tmp_path / "small", "size=256k") as small:
        await story()


NO_MORE = """
import asyncio, contextlib, os, resource, sys, time
from pathlib import Path
from reconciler.errors import EngineError
from tests.engines.host.runtimes.process.kit import opened, shell

async def story():
    async with opened(Path(sys.argv[1]), limited=False) as host:
        await host.runtime.start(shell("exit 0"))
        await host.over()
        if os.geteuid() == 0:
            for folder, _, files in os.walk(sys.argv[1]):
                for each in (folder, *(os.path.join(folder, name) for name in files)):
                    with contextlib.suppress(FileNotFoundError):  # what ended is tidied up meanwhile
                        os.chmod(each, 0o777)
            os.setuid(54321)
        await asyncio.gather(*(asyncio.to_thread(time.sleep, 0.05) for _ in range(40)))  # all threads: each counts
        limits = resource.getrlimit(resource.RLIMIT_NPROC)
        resource.setrlimit(resource.RLIMIT_NPROC, (1, limits[1]))
        try:
            await host.runtime.start(shell("exit 0"))
        except EngineError as error:
            print(error.reason, error)
        os._exit(0)

sys.stdout.reconfigure(line_buffering=True)
asyncio.run(story())
"""


def test_a_host_that_has_no_process_left() -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        ended = subprocess.run([sys.executable, "-c", NO_MORE, folder], capture_output=True, text=True, check=False)
    assert ended.stdout == "ProcessLimitReached no process for main: Resource temporarily unavailable\n", ended.stderr
