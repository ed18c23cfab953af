"""`reconciler exec`: commands and shells in containers that run, with pipes and on a real terminal."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from reconciler.engines.host.controllers.replica_store import ReplicaStore
from reconciler.engines.host.decisions.replica import Phase, Replica, ReplicaContainer
from reconciler.engines.host.runtimes.protocol import ContainerId
from reconciler.model.key import Key
from reconciler.records.store import FILE, Records
from tests.engines.host.runtimes.process.kit import KEY, launch, marked, opened
from tests.support import processes
from tests.support.command_sandbox import SETTINGS, golden, here
from tests.support.programs import only_root
from tests.support.records import record
from tests.support.sandbox import eventually
from tests.support.terminal import Terminal, terminal

WORKLOAD = str(KEY)
ON_HOST = SETTINGS.replace("  here: {engine: recorded}", "  here: {engine: host, runtime: process}")
MEBIBYTE = 1 << 20
RESIZED_AT_THE_START = """
import fcntl, struct, sys, termios
from reconciler.cli import main
from reconciler.operations import exec

start = exec.open_session

async def start_and_resize(*arguments):
    session = await start(*arguments)
    fcntl.ioctl(sys.stdout, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    return session

exec.open_session = start_and_resize
main()
"""
"""The program, whose terminal changes its size as soon as the command is started; its first word is the command."""
RUNNING = Phase.RUNNING


def replica(name: str, *containers: ReplicaContainer, key: Key = KEY, ready: bool = True) -> Replica:
    """A replica, ready if ``ready``."""
    return Replica(name, key, 1, "", 0.0, containers, ready_since=1.0 if ready else None)


class ExecHarness:
    """A state directory with a container that runs, of a runtime that nothing watches meanwhile."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.root = path / "state" / "host" / "here"
        (path / "settings.yaml").write_text(ON_HOST)
        self.save(replica("r", ReplicaContainer("main", RUNNING), ReplicaContainer("side", RUNNING)))
        self.command = [sys.executable, "-m", "reconciler.cli", "exec", WORKLOAD, "--settings"]
        self.command += [str(path / "settings.yaml")]

    def save(self, made: Replica) -> None:
        """Record a replica."""
        ReplicaStore(self.root / "replicas").save(made)

    def run(self, *words: str, content: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        """A command with pipes."""
        return subprocess.run([*self.command, *words], input=content, capture_output=True, timeout=60, check=False)

    def kill(self, of: ContainerId) -> None:
        """Kill a container as the daemon does."""
        asyncio.run_coroutine_threadsafe(self._host.runtime.signal(of, signal.SIGKILL), self._loop).result(60)

    @contextmanager
    def working(self) -> Iterator[ExecHarness]:
        """Its containers run, in another thread, for the block."""
        begun, over = threading.Event(), threading.Event()

        async def story() -> None:
            async with opened(self.root) as self._host:
                self._loop = asyncio.get_running_loop()
                for name in ("main", "side"):
                    env = {"PATH": "/usr/bin:/bin", "WHERE": name, "PS1": "inside> "}
                    started = launch("sleep", "1000", of=ContainerId(KEY, "r", name), env=env)
                    await self._host.runtime.start(msgspec.structs.replace(started, directory=str(self.path)))
                begun.set()
                await asyncio.to_thread(over.wait)

        thread = threading.Thread(target=asyncio.run, args=(story(),))
        thread.start()
        assert begun.wait(60)
        try:
            yield self
        finally:
            over.set()
            thread.join()


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[ExecHarness]:
    with ExecHarness(tmp_path).working() as working:
        yield working


@contextmanager
def on_terminal(harness: ExecHarness, *words: str) -> Iterator[Terminal]:
    """A command on a terminal of 24 lines and 100 columns."""
    with terminal([*harness.command, *words], {}) as opened:
        yield opened


def test_streams_arguments_and_exit_codes_pass_unchanged(harness: ExecHarness) -> None:
    content = os.urandom(MEBIBYTE)
    result = harness.run("--", "tee", "/dev/stderr", content=content)
    assert (result.returncode, result.stdout == content, result.stderr == content) == (0, True, True)
    result = harness.run("--container", "side", "--", "sh", "-c", 'pwd; echo "$WHERE"; exit 255')
    assert (result.returncode, result.stdout) == (255, f"{harness.path}\nside\n".encode())
    assert harness.run("--", "no-such-program").returncode == 127


def test_a_slow_reader_gets_all_output_and_may_end_first(harness: ExecHarness) -> None:
    shell = f"{' '.join(harness.command)} -- yes | head -c 3; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr) == ("y\ny1\n", "")
    eventually(lambda: len(marked(harness.root)) == 4, "the end of the program", 30)


def test_a_shell_on_a_terminal(harness: ExecHarness) -> None:
    with on_terminal(harness, "--", "sh", "-i") as shell:
        shell.until(lambda screen: screen.endswith("inside> "), "a prompt")
        assert not shell.echoes()
        shell.type(b"stty size; echo in-$WHERE\r")
        # What is typed before the prompt comes is shown before it too, and then output follows the prompt.
        shell.until(lambda screen: screen.endswith("24 100\nin-main\ninside> "), "the size of the window, and a prompt")
        shell.resize(40, 120)
        shell.type(b"until stty size | grep '40 120$'; do sleep 0.05; done\r")
        shell.until(lambda screen: "\n40 120\n" in screen, "the new size")
        shell.type(b"sh -c 'echo be\"\"gun; exec sleep 1000'\r")
        shell.until(lambda screen: "\nbegun" in screen, "the program")
        shell.type(b"\x03")
        shell.type(b"exit 7\r")
        shell.ended()
        assert shell.process.returncode == 7
        assert shell.echoes()


def test_a_size_that_changes_while_the_program_starts_is_passed_on(harness: ExecHarness) -> None:
    waiting = "until stty size | grep '40 120$'; do sleep 0.05; done"
    words = [*harness.command[harness.command.index("exec") :], "--", "sh", "-c", waiting]
    with terminal([sys.executable, "-c", RESIZED_AT_THE_START, *words], {}) as shell:
        assert shell.ended() == "40 120"
        assert shell.process.returncode == 0


def test_a_shell_is_what_runs_where_nothing_is_named(harness: ExecHarness) -> None:
    found = harness.run(content=b"echo in-$WHERE; exit 3\n")
    assert (found.returncode, found.stdout) == (3, b"in-main\n")


def test_a_container_that_ends_ends_its_shells_with_an_error(harness: ExecHarness) -> None:
    with on_terminal(harness, "--", "sh", "-c", "echo ready; sleep 1000") as shell:
        shell.until(lambda screen: "ready" in screen, "the program")
        harness.kill(ContainerId(KEY, "r", "main"))
        shell.ended()
        assert shell.process.stderr is not None
        error = shell.process.stderr.read().decode()
        assert error == "error: container main of r has ended, and the program with it\n"
        assert shell.process.returncode == 125
        assert shell.echoes()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_command_that_is_ended_restores_the_terminal_and_ends_its_program(
    harness: ExecHarness, number: int, code: int
) -> None:
    with on_terminal(harness, "--", "sh", "-c", "echo ready; sleep 1000") as shell:
        shell.until(lambda screen: "ready" in screen, "the program")
        shell.process.send_signal(number)
        shell.ended()
        assert (shell.process.returncode, shell.echoes()) == (code, True)
        eventually(lambda: len(marked(harness.root)) == 4, "the end of the program", 30)


def test_options_decide_whether_exec_allocates_a_terminal(harness: ExecHarness) -> None:
    with on_terminal(harness, "--no-tty", "--", "sh", "-c", "tty; echo over") as shell:
        assert shell.ended() == "not a tty\nover"
    found = harness.run("-it", "--", "sh", "-c", "stty size", content=b"")
    assert (found.returncode, found.stdout.replace(b"^D\x08\x08", b"")) == (0, b"24 80\r\n")


WORDS = (
    ("gvc/shop",),
    ("workload/shop/ap",),
    ("workload/shop/idle",),
    ("workload/shop/moved",),
    (WORKLOAD, "--replica", "api-4"),
    (WORKLOAD, "--container", "mian"),
    (WORKLOAD, "--location", "her"),
    (WORKLOAD, "--location", "there"),
    (WORKLOAD, "--replica", "api-2"),
    ("workload/shop/web",),
    (WORKLOAD,),
)


def test_exec_explains_why_it_cannot_enter_a_container(tmp_path: Path) -> None:
    harness = ExecHarness(tmp_path)
    harness.save(replica("api-1", ReplicaContainer("main", RUNNING), ReplicaContainer("side", RUNNING)))
    harness.save(replica("api-2", ReplicaContainer("main", Phase.WAITING, failures=1), ready=False))
    web = Key.parse("workload/shop/web")
    harness.save(replica("web-1", ReplicaContainer("main", Phase.WAITING, failures=1), key=web, ready=False))
    harness.save(replica("web-2", ReplicaContainer("main", RUNNING), key=web, ready=False))
    records = Records.open(tmp_path / "state" / FILE)
    body = {"spec": {"type": "standard", "containers": [{"name": "main", "image": "none"}]}}
    for name, engine in (("api", "host"), ("idle", "host"), ("moved", "recorded")):
        records.applied.put_many([record(f"workload/shop/{name}", body, "here", engine=engine)])
    records.close()
    shown = ""
    for words in WORDS:
        ended = here("exec", *words, "--", "true", cwd=tmp_path)
        shown += f"$ reconciler exec {' '.join(words)} -- true\n{ended.out}{ended.err}exit {ended.code}\n"
    golden("exec.txt", shown)


@only_root("only root can become another user")
def test_another_user_is_refused(tmp_path: Path) -> None:
    ExecHarness(tmp_path)
    below_tmp = tmp_path.relative_to(tempfile.gettempdir()).parts
    for folder in (tmp_path, *tmp_path.parents[: len(below_tmp) - 1]):
        folder.chmod(0o755)
    (tmp_path / "state").chmod(0o711)
    settings = {"RECONCILER_SETTINGS": str(tmp_path / "settings.yaml")}
    found = processes.reconciler("exec", WORKLOAD, "--", "true", environ=settings, user=12_345, groups=[])
    message = "error: only root and the daemon's user may enter containers, since their variables contain secrets\n"
    assert (found.returncode, found.stderr) == (125, message)
