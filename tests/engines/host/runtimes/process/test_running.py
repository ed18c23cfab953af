"""Containers run as asked, and what they wrote and how they ended is known."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import msgspec
import pytest

from reconciler.engines.host.runtimes.process.child_setup import nproc_limit
from reconciler.errors import EngineError
from tests.engines.host.runtimes.process.kit import alive, as_root, both_ways, launch, marked, opened, place, shell
from tests.support.waiting import until


@pytest.mark.parametrize(
    ("script", "code", "reason"),
    [
        ("exit 0", 0, "Completed"),
        ("exit 3", 3, "Error"),
        ("exit 127", 127, "Error"),
        ("kill -TERM $$", 128 + signal.SIGTERM, "Error"),
        ("kill -SEGV $$", 128 + signal.SIGSEGV, "Error"),
        ("kill -KILL $$", 128 + signal.SIGKILL, "Error"),
    ],
)
async def test_the_runtime_reports_how_a_program_ended(tmp_path: Path, script: str, code: int, reason: str) -> None:
    async with opened(tmp_path) as host:
        await host.runtime.start(shell(script))
        ended = await host.over()
        assert (ended.code, ended.reason) == (code, reason)
        assert host.output() == ""


async def test_no_signal_is_ignored_when_a_program_begins(tmp_path: Path) -> None:
    async def story() -> None:
        async with opened(tmp_path) as host:
            await host.runtime.start(shell("grep SigIgn /proc/self/status"))
            ignored = int((await host.wrote("\n")).split()[1], 16)
            assert ignored & (1 << 31) - 1 == 0, "of those that a program can change"

    former = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as below nohup
    try:
        await story()
    finally:
        signal.signal(signal.SIGHUP, former)


async def test_a_command_that_the_shell_cannot_run_has_not_started(tmp_path: Path) -> None:
    async def story(env: dict[str, str], reason: str) -> None:
        async with opened(tmp_path / reason) as host:
            await host.runtime.start(launch(str(program), env=env))
            ended = await host.over()
            assert (ended.code, ended.reason) == (127, reason)
            assert str(program) in host.output()

    program = tmp_path / "program"
    program.write_text("#!/no/such/interpreter\n")
    program.chmod(0o755)
    await story({}, "StartFailed" if os.readlink("/bin/sh").endswith("dash") else "Error")
    await story({"a.name": "that only bash hands on"}, "Error")


async def test_a_program_gets_its_own_environment_and_nothing_of_the_daemons(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:

    monkeypatch.setenv("CANARY", "of the daemon")

    async with opened(tmp_path) as host:
        variables = {"A": "1", "TEXT": "two words\nand a line", "EMPTY": "", "odd.name-x": "3"}
        await host.runtime.start(launch("python3", "-c", "import os; print(dict(os.environ))", env=variables))
        await host.over()
        environment = eval(host.output())
        assert {name: environment[name] for name in variables} == variables
        more = {"PATH", "PWD", "SHLVL", "_", "LC_CTYPE"} | {
            name for name in environment if name.startswith("RECONCILER_")
        }
        assert environment.keys() - more == variables.keys()


async def test_arguments_arrive_as_they_are(tmp_path: Path) -> None:
    args = ("-n", "", "a b", "$HOME", "`id`", "'\"", "*", "new\nline", "go")
    async with opened(tmp_path) as host:
        await host.runtime.start(launch("python3", "-c", "import sys; print(sys.argv[1:])", *args))
        await host.over()
        assert eval(host.output()) == list(args)


async def test_a_program_has_files_for_its_output_nothing_to_read_and_no_other_file(tmp_path: Path) -> None:

    os.umask(os.umask(0o077))

    async with opened(tmp_path) as host:
        await host.runtime.start(shell("for each in /proc/$$/fd/*; do readlink $each; done; umask; pwd >&2"))
        await host.over()
        output = str(host.runtime.output(place()))
        assert host.output().splitlines() == ["/dev/null", output, output, "0022", "/"]


async def test_the_list_of_processes_shows_a_title_and_the_program(tmp_path: Path) -> None:
    async with opened(tmp_path) as host:
        await host.runtime.start(launch("sleep", "1000"))
        await until(lambda: len(commands(tmp_path)) == 2 and commands(tmp_path)[1] != commands(tmp_path)[0])
        assert commands(tmp_path) == ["reconciler: shop/api/r/main", "/usr/bin/sleep 1000"]


def commands(root: Path) -> list[str]:
    """The command lines of what runs there, the oldest first."""
    found = [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in sorted(marked(root))]
    return [each.rstrip(b"\0").replace(b"\0", b" ").decode() for each in found]


async def test_no_program_writes_its_memory_with_its_secrets_to_a_file(tmp_path: Path) -> None:
    script = "awk '/Max core/ {print $5, $6}' /proc/self/limits"
    async with opened(tmp_path) as host:
        await host.runtime.start(shell(f"{script}; echo end; exec sleep 1000"))
        await host.wrote("end")
        assert host.output() == "0 0\nend\n"
        assert (await host.runtime.exec(place(), ["sh", "-c", script], 10)).output == "0 0\n"


@both_ways
async def test_no_program_gains_rights_and_processes_are_limited(tmp_path: Path, limited: bool) -> None:
    script = "awk '/NoNewPrivs/ {print $2}' /proc/self/status; awk '/Max processes/ {print $3, $4}' /proc/self/limits"
    async with opened(tmp_path, limited=limited) as host:
        await host.runtime.start(shell(f"{script}; echo end; exec sleep 1000"))
        await host.wrote("end")
        most = nproc_limit()
        assert host.output() == f"1\n{most} {most}\nend\n"
        assert (await host.runtime.exec(place(), ["sh", "-c", script], 10)).output == f"1\n{most} {most}\n"


async def test_a_program_may_be_named_by_its_path_from_its_directory(tmp_path: Path) -> None:

    program = tmp_path / "echo"
    program.write_text("#!/bin/sh\npwd\nexit 5\n")
    program.chmod(0o755)

    async with opened(tmp_path / "state") as host:
        asked = msgspec.structs.replace(launch("./echo"), directory=str(tmp_path))
        await host.runtime.start(asked)
        assert (await host.over()).code == 5
        assert host.output() == f"{tmp_path}\n"


async def test_a_name_that_a_shell_has_of_its_own_means_the_program(tmp_path: Path) -> None:

    program = tmp_path / "exit"
    program.write_text("#!/bin/sh\nexit 7\n")
    program.chmod(0o755)

    async with opened(tmp_path / "state") as host:
        await host.runtime.start(launch("exit", "3", env={"PATH": f"/nowhere::{tmp_path}"}))
        assert (await host.over()).code == 7


async def test_output_of_the_next_start_follows_that_of_the_last(tmp_path: Path) -> None:
    async with opened(tmp_path) as host:
        await host.runtime.start(shell("echo one; exit 1"))
        await host.over()
        host.ended.clear()
        await host.runtime.start(shell("echo two; exit 0"))
        assert (await host.over()).code == 0
        assert host.output() == "one\ntwo\n"


async def test_a_start_that_is_repeated_starts_nothing(tmp_path: Path) -> None:
    asked = shell("echo $$; exec sleep 1000")
    async with opened(tmp_path) as host:
        await asyncio.gather(*(host.runtime.start(asked) for _ in range(5)))
        await host.number()
        assert len(marked(tmp_path)) == 2  # the wrapper and its program
        assert len(host.output().splitlines()) == 1
        with pytest.raises(EngineError, match="runs already in version 1") as refused:
            await host.runtime.start(msgspec.structs.replace(asked, version=2))
        assert refused.value.reason == "AlreadyRunning"


async def test_a_start_completes_although_its_caller_is_cancelled(tmp_path: Path) -> None:
    async with opened(tmp_path) as host:
        waiting = asyncio.create_task(host.runtime.start(shell("echo $$; exec sleep 1000")))
        await asyncio.sleep(0)
        waiting.cancel()
        await host.number()
        assert (await host.running()).alive


@both_ways
async def test_containers_of_a_replica_are_separate(tmp_path: Path, limited: bool) -> None:
    async with opened(tmp_path, limited=limited) as host:
        web, side = place(container="web"), place(container="side")
        await host.runtime.start(shell("echo $$; exec sleep 1000", of=web, version=3, config_hash="a/b", index=2))
        await host.runtime.start(shell("echo $$; exec sleep 1000", of=side))
        pids = [await host.number(web), await host.number(side)]
        await host.runtime.signal(web, signal.SIGKILL)
        ended = await host.over(web)
        assert (ended.version, ended.config_hash, ended.index, ended.code) == (3, "a/b", 2, 137)
        assert [alive(pid) for pid in pids] == [False, True]
        assert [each.alive for each in await host.runtime.list()] == [True, False]


@as_root
async def test_a_program_runs_as_the_user_and_in_the_group_that_are_asked_for(tmp_path: Path) -> None:
    async with opened(tmp_path) as host:
        await host.runtime.start(shell("id -u; id -g; id -G; exec sleep 1000", user=12345, group=23456))
        await host.wrote("23456\n")
        assert host.output().splitlines() == ["12345", "12345", "12345 23456"]
        beside = await host.runtime.exec(place(), ["sh", "-c", "id -u; id -G"], 30)
        assert beside.output.split() == ["12345", "12345", "23456"], beside
        await host.runtime.signal(place(), signal.SIGTERM)
        assert (await host.over()).code == 143


@as_root
async def test_without_a_user_the_group_of_the_volumes_comes_in_addition(tmp_path: Path) -> None:
    async with opened(tmp_path) as host:
        await host.runtime.start(shell("id -u; id -G", group=23456))
        await host.over()
        user, groups = host.output().splitlines()
        assert user == "0"
        assert "23456" in groups.split()
