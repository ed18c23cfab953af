"""Programs run beside that of a container, as hooks and probes need it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from reconciler.engines.host.runtimes.exit_watch import ExitWatcher
from reconciler.engines.host.runtimes.process.exec import MAX_OUTPUT_BYTES, execute_command
from reconciler.engines.host.runtimes.process.state_dir import StateDirectory
from reconciler.errors import EngineError
from tests.engines.host.runtimes.process.kit import alive, both_ways, launch, marked, opened, place, shell
from tests.support.waiting import until

SHOWS = "import os, sys; print(os.getcwd(), os.environ['PASSWORD'], os.environ['odd.name'], sep='\\n'); sys.exit(5)"


@both_ways
async def test_it_runs_with_the_environment_and_directory_of_the_container(tmp_path: Path, limited: bool) -> None:
    asked = launch("sleep", "1000", env={"PASSWORD": "hunter2", "odd.name": "x"})
    async with opened(tmp_path / "state", limited=limited) as host:
        await host.runtime.start(msgspec.structs.replace(asked, directory=str(tmp_path)))
        found = await host.runtime.exec(place(), ["python3", "-c", SHOWS], 30)
        assert (found.code, found.output, found.timed_out) == (5, f"{tmp_path}\nhunter2\nx\n", False)


@both_ways
async def test_arguments_arrive_as_they_are_and_there_is_nothing_to_read(tmp_path: Path, limited: bool) -> None:
    async with opened(tmp_path, limited=limited) as host:
        await host.runtime.start(launch("sleep", "1000"))
        show = "import sys; print(sys.argv[1:], sys.stdin.read())"
        found = await host.runtime.exec(place(), ["python3", "-c", show, "a b", "$HOME", "go"], 30)
        assert found.output == "['a b', '$HOME', 'go'] \n"


@both_ways
async def test_the_last_part_of_the_output_is_returned(tmp_path: Path, limited: bool) -> None:
    async with opened(tmp_path, limited=limited) as host:
        await host.runtime.start(launch("sleep", "1000"))
        script = "import sys; print('x' * 1_000_000, end='', flush=True); print('the end', file=sys.stderr)"
        exec_result = await host.runtime.exec(place(), ["python3", "-c", script], 30)
        assert exec_result.code == 0
        assert len(exec_result.output) == MAX_OUTPUT_BYTES
        assert exec_result.output.endswith("xthe end\n")


@both_ways
async def test_at_the_timeout_all_of_it_is_killed_and_the_container_goes_on(tmp_path: Path, limited: bool) -> None:
    async with opened(tmp_path, limited=limited) as host:
        await host.runtime.start(launch("sleep", "1000"))
        await until(lambda: len(marked(tmp_path)) == 2)
        before = marked(tmp_path)
        found = await host.runtime.exec(place(), ["sh", "-c", "trap '' TERM; echo up; sleep 1000 & wait"], 0.5)
        assert (found.code, found.output, found.timed_out) == (137, "up\n", True)
        await until(lambda: sorted(marked(tmp_path)) == sorted(before))
        assert (await host.running()).alive


@both_ways
async def test_a_child_that_holds_the_output_open_is_not_waited_for(tmp_path: Path, limited: bool) -> None:
    async with opened(tmp_path, limited=limited) as host:
        await host.runtime.start(launch("sleep", "1000"))
        exec_result = await host.runtime.exec(place(), ["sh", "-c", "sleep 1000 & echo $!"], 60)
        assert exec_result.code == 0
        assert alive(int(exec_result.output))
    assert not alive(int(exec_result.output))


@both_ways
async def test_a_program_that_is_not_there_fails_as_in_a_shell(tmp_path: Path, limited: bool) -> None:
    (tmp_path / "program").write_text("")
    async with opened(tmp_path / "state", limited=limited) as host:
        await host.runtime.start(launch("sleep", "1000"))
        missing = await host.runtime.exec(place(), ["no-such-program"], 30)
        assert (missing.code, "no-such-program" in missing.output) == (127, True)
        refused = await host.runtime.exec(place(), [str(tmp_path / "program")], 30)
        assert (refused.code, "program" in refused.output) == (126, True)


class CancellingWatcher(ExitWatcher):
    """Cancels ``waiter`` in the turn of the loop in which a watched program ends."""

    waiter: asyncio.Task[object] | None = None

    def watch(self, pid: int, call: Callable[[], object]) -> None:
        """As ExitWatcher."""

        def also() -> None:
            call()
            if self.waiter is not None:
                self.waiter.cancel()

        super().watch(pid, also)


async def test_a_cancellation_in_the_turn_of_its_end_is_not_lost(tmp_path: Path) -> None:
    async with opened(tmp_path) as host:
        await host.runtime.start(launch("sleep", "1000"))
        (begun,) = StateDirectory(tmp_path.resolve() / "run").records()
        watcher = CancellingWatcher()
        watcher.waiter = asyncio.create_task(execute_command(begun, ["true"], 30, watcher))
        with pytest.raises(asyncio.CancelledError):
            await watcher.waiter
        watcher.close()


async def test_a_program_killed_by_a_signal_has_the_code_of_a_shell(tmp_path: Path) -> None:
    async with opened(tmp_path) as host:
        await host.runtime.start(launch("sleep", "1000"))
        assert (await host.runtime.exec(place(), ["sh", "-c", "kill -TERM $$"], 30)).code == 143


async def test_nothing_runs_beside_a_container_that_does_not_run(tmp_path: Path) -> None:
    async with opened(tmp_path) as host:
        with pytest.raises(EngineError) as unknown:
            await host.runtime.exec(place(), ["true"], 30)
        await host.runtime.start(shell("exit 0"))
        await host.over()
        with pytest.raises(EngineError) as over:
            await host.runtime.exec(place(), ["true"], 30)
        assert (unknown.value.reason, over.value.reason) == ("NotRunning", "NotRunning")


async def test_the_loop_goes_on_meanwhile_and_a_waiter_may_give_up(tmp_path: Path) -> None:
    async with opened(tmp_path) as host:
        await host.runtime.start(launch("sleep", "1000"))
        hasty = [asyncio.create_task(host.runtime.exec(place(), ["sleep", "1000"], 900)) for _ in range(5)]
        await asyncio.sleep(0)
        for waiter in hasty:
            waiter.cancel()
        waiting = [asyncio.create_task(host.runtime.exec(place(), ["sleep", "1000"], 900)) for _ in range(20)]
        await until(lambda: len(marked(tmp_path)) == 22, "twenty at once")
        for waiter in waiting:
            waiter.cancel()
        begun = time.monotonic()
        await asyncio.gather(*waiting, return_exceptions=True)
        assert all(task.cancelled() for task in waiting)
        assert time.monotonic() - begun < 600
        await until(lambda: len(marked(tmp_path)) == 2, "the end of all that was cancelled")
