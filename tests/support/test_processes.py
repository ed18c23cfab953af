"""A command answers the same in this process, in a forked one and in a fresh one."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.support import processes
from tests.support.command_sandbox import CommandResult, CommandSandbox, alone
from tests.support.programs import only_root

WORDS = (
    ["--help"],
    ["plan", "--format", "json"],
    ["get", "workload", "nonsense"],
    ["validate", "--no-such-option"],
    ["describe", "secret/db"],
)


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> CommandSandbox:
    """A sandbox where something is applied, which no command here changes."""
    sandbox = CommandSandbox(tmp_path_factory.mktemp("desk"))
    sandbox.applied()
    return sandbox


@pytest.mark.parametrize("words", WORDS, ids=" ".join)
def test_a_command_answers_the_same_wherever_it_runs(sandbox: CommandSandbox, words: list[str]) -> None:
    fresh: CommandResult = alone(*words, cwd=sandbox.path, fresh=True)
    assert fresh.out + fresh.err
    assert sandbox.run(*words, real=True) == fresh
    assert sandbox.run(*words) == fresh


PROGRAMS = {
    "streams": "import sys; print('out ü'); print('err', file=sys.stderr); print(repr(sys.stdin.read()), sys.argv)",
    "code": "import sys; sys.exit(7)",
    "words": "import sys; sys.exit('what is wrong')",
    "bug": "int('x')",
    "interrupted": "raise KeyboardInterrupt",
    "killed": "import os; os.kill(os.getpid(), 9)",
    "place": "import os; print(os.getcwd(), os.environ.get('WANTED'), os.isatty(0), os.listdir('/proc/self/fd')[:3])",
    "exit": "import atexit; atexit.register(print, 'at exit')",
    "threads": "import threading, time; threading.Thread(target=lambda: (time.sleep(0.05), print('late'))).start()",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_forked_program_begins_and_ends_as_a_fresh_one(tmp_path: Path, name: str) -> None:
    words, environ = ["-c", PROGRAMS[name], "a", "-b"], {"WANTED": "x"}
    forked, fresh = (processes.run(words, cwd=tmp_path, environ=environ, fresh=each) for each in (False, True))
    assert (forked.returncode, forked.stdout) == (fresh.returncode, fresh.stdout)
    # The traceback of a forked one begins in the fork server.
    assert forked.stderr.splitlines()[-1:] == fresh.stderr.splitlines()[-1:]


@only_root("only root can become another user")
def test_another_user_has_no_rights_of_this_one() -> None:
    program = "import os; print(os.getresuid(), os.getresgid(), os.getgroups())"
    ended = processes.run(["-c", program], user=12_345, groups=[20])
    assert ended.stdout == "(12345, 12345, 12345) (12345, 12345, 12345) [20]\n"


def test_an_environment_for_the_interpreter_starts_a_fresh_process() -> None:
    ended = processes.run(["-c", "import sys; print(sys.flags.hash_randomization)"], environ={"PYTHONHASHSEED": "0"})
    assert ended.stdout == "0\n"


def test_a_forked_process_takes_signals(tmp_path: Path) -> None:
    with (tmp_path / "out").open("wb") as out:
        process = processes.start(["-c", "print('on', flush=True); import time; time.sleep(60)"], out, out)
        assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == -signal.SIGTERM == process.poll()
        process.kill()
