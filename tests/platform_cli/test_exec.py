"""`platform workload exec` and `connect`: programs in a container that runs, with pipes and on a real terminal."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from reconciler.daemon.api_process import SOCKET
from reconciler.platform_cli.client import ApiEndpoint, Client
from reconciler.platform_cli.remote_session import open_session
from tests.platform_cli.kit import Relay
from tests.platform_cli.test_transport import PassingProxy
from tests.support.certificates import authority, issue
from tests.support.host_sandbox import HostSandbox, host_sandbox, open_place, served
from tests.support.processes import free_ports
from tests.support.sandbox import eventually
from tests.support.terminal import Terminal, terminal
from tests.support.waiting import serving

COMMAND = (sys.executable, "-m", "reconciler.platform_cli")
MEBIBYTE = 1 << 20
TAIL = 'sleep "$0"; exec wc -c'
"""A program that does not read for the seconds of its argument, and then counts."""


ACCESS = """kind: serviceaccount
name: ci
---
kind: serviceaccount
name: guest
---
kind: policy
name: connect-web
targetKind: workload
target: all
bindings:
  - {permissions: [connect], principalLinks: [//serviceaccount/ci]}
  - {permissions: [view], principalLinks: [//serviceaccount/guest]}
"""


class ExecHarness:
    """A daemon with a workload that runs, and the command of a user who reaches it through ``relay``."""

    def __init__(self, sandbox: HostSandbox, relay: Relay) -> None:
        self.sandbox = sandbox
        self.relay = relay
        self.port = int(sandbox.settings["api"]["address"].partition(":")[2])
        self.command = [*COMMAND, "workload"]
        self.environ = {
            "HOME": str(sandbox.path),
            "XDG_CONFIG_HOME": str(sandbox.path / "config"),
            "PLATFORM_ORG": "acme",
            "PLATFORM_GVC": "shop",
            "PLATFORM_ENDPOINT": f"unix://{relay.path}",
        }

    def run(
        self, *words: str, content: bytes = b"", group: str = "workload", **environ: str
    ) -> subprocess.CompletedProcess[bytes]:
        """A command with pipes."""
        environ = {**os.environ, **self.environ, **environ}
        return subprocess.run(
            [*COMMAND, *filter(None, (group,)), *words],
            input=content,
            env=environ,
            capture_output=True,
            timeout=60,
            check=False,
        )

    @contextmanager
    def on_terminal(self, *words: str, width: int = 100) -> Iterator[Terminal]:
        """A command on a terminal of 24 lines."""
        with terminal([*self.command, *words], {**self.environ, "PS1": "inside> "}, width) as opened:
            yield opened

    def runs(self, words: str) -> bool:
        """Whether a program of a replica has these words."""
        return any(words in each for each in self.sandbox.programs().values())


@pytest.fixture(scope="module")
def harness() -> Iterator[ExecHarness]:
    env = {"GREETING": "hello", "PS1": "inside> "}
    files = {"shop/web.yaml": served(replicas=1, env=env), "access.yaml": ACCESS}
    [port], issued = free_ports(1), issue("localhost")
    with open_place() as path:
        (path / "api.crt").write_bytes(issued.chain_pem)
        (path / "authority.crt").write_bytes(authority().chain_pem)
        (path / "api.key").write_bytes(issued.key_pem)
        tls = {"certificate": str(path / "api.crt"), "key": str(path / "api.key")}
        yield from _served(path, files, {"address": f"127.0.0.1:{port}", "tls": tls})


def _served(path: Path, files: Mapping[str, str], api: Mapping[str, Any]) -> Iterator[ExecHarness]:
    with host_sandbox(path, files, api=api) as sandbox, sandbox.daemon():
        eventually(lambda: sandbox.ready("web"), "the replica is ready")
        eventually(lambda: (sandbox.state / SOCKET).exists(), "the API listens")
        relay = Relay(path / "relay.sock", sandbox.state / SOCKET)
        yield ExecHarness(sandbox, relay)
        relay.close()


def test_a_mebibyte_passes_both_ways_unchanged(harness: ExecHarness) -> None:
    content = os.urandom(MEBIBYTE)
    found = harness.run("exec", "web", "-i", "--", "tee", "/dev/stderr", content=content)
    assert (found.returncode, found.stdout == content, found.stderr == content) == (0, True, True)


def test_a_mebibyte_passes_through_two_terminals_unchanged(harness: ExecHarness) -> None:
    """Every byte, also those that are Ctrl-C, Ctrl-D and the ends of lines on a terminal in its usual mode."""
    content = os.urandom(MEBIBYTE)
    program = f"stty raw -echo; printf ready; head -c {MEBIBYTE}"
    with harness.on_terminal("exec", "web", "--", "sh", "-c", program) as shell:
        shell.until(lambda screen: screen == "ready", "the program")
        assert shell.exchange(content, MEBIBYTE) == content
        shell.ended()
        assert (shell.process.returncode, shell.echoes()) == (0, True)


@pytest.mark.parametrize("code", [0, 125, *(pytest.param(code, marks=pytest.mark.slow) for code in (1, 2, 255))])
def test_exec_exits_with_the_code_of_the_program(harness: ExecHarness, code: int) -> None:
    result = harness.run(
        "exec", "web", "--quiet", "--", "sh", "-c", f'echo "$GREETING" "$@"; exit {code}', "x", "--ts=true"
    )
    assert (result.returncode, result.stdout, result.stderr) == (code, b"hello --ts=true\n", b"")


@pytest.mark.slow
def test_every_exit_code_arrives(harness: ExecHarness) -> None:
    client = Client(ApiEndpoint(f"unix://{harness.sandbox.state / SOCKET}"))

    async def code_of(code: int) -> int:
        words = ("sh", "-c", f"exit {code}")
        session = await open_session(client, "/org/acme/gvc/shop/workload/web", words, {}, None)
        assert await session.read() is None
        found = await session.wait()
        await session.close()
        return found

    async def codes() -> list[int]:
        return [await code_of(code) for code in range(256)]

    assert asyncio.run(codes()) == [*range(256)]


def test_a_signal_and_a_missing_program_have_their_codes(harness: ExecHarness) -> None:
    found = harness.run("exec", "web", "--", "sh", "-c", "kill -KILL $$")
    assert (found.returncode, found.stderr) == (137, b"the command ended with exit code 137\n")
    assert harness.run("exec", "web", "--", "no-such-program").returncode == 127


def test_only_wanted_input_is_passed_on(harness: ExecHarness) -> None:
    assert harness.run("exec", "web", "--", "cat", content=b"not for it").stdout == b""
    shell = harness.run("connect", "web", "--shell", "sh", "--container", "main", content=b"echo in-$0; exit 3\n")
    assert (shell.returncode, shell.stdout) == (3, b"in-sh\n")
    assert shell.stderr == b"connected to web; `exit` ends the shell\n"


def test_replicas_are_listed_with_what_they_use(harness: ExecHarness) -> None:
    heading, line = harness.run("get-replicas", "web").stdout.decode().splitlines()
    assert heading.split() == ["LOCATION", "NAME", "VERSION", "STATE", "RESTARTS", "CPU", "MEMORY", "AGE", "MESSAGE"]
    assert re.fullmatch(r"here +web-\S+ +1 +Ready +0 +(-|\d+m) +(-|\d+Mi) +\d+[smh]", line), line


def test_a_shell_on_a_terminal(harness: ExecHarness) -> None:
    with harness.on_terminal("connect", "web", "--shell", "sh") as shell:
        shell.until(lambda screen: screen.endswith("inside> "), "a prompt")
        assert not shell.echoes()
        shell.type(b"stty size; echo $GREETING\r")
        shell.until(lambda screen: screen.endswith("24 100\nhello\ninside> "), "the size of the window, and a prompt")
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


def test_options_decide_about_the_terminal(harness: ExecHarness) -> None:
    with harness.on_terminal("exec", "web", "--no-tty", "--", "sh", "-c", "tty; echo over") as shell:
        assert shell.ended() == "not a tty\nover"
    found = harness.run("exec", "web", "-it", "--", "sh", "-c", "stty size", content=b"")
    assert (found.returncode, found.stdout.replace(b"^D\x08\x08", b"")) == (0, b"24 80\r\n")


def test_a_cut_connection_is_one_sentence_with_a_code_of_its_own(harness: ExecHarness) -> None:
    with harness.on_terminal("exec", "web", "--", "sh", "-c", "echo begun; sleep 1000.5") as shell:
        shell.until(lambda screen: "begun" in screen, "the program")
        harness.relay.cut()
        shell.ended()
        assert shell.process.stderr is not None
        error = shell.process.stderr.read().decode()
        assert error == "error: the connection was cut, so the exit code is unknown; the server ends the program\n"
        assert (shell.process.returncode, shell.echoes()) == (125, True)
    eventually(lambda: not harness.runs("sleep 1000.5"), "the end of the program")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_command_that_is_ended_restores_the_terminal_and_ends_its_program(
    harness: ExecHarness, number: int, code: int
) -> None:
    with harness.on_terminal("exec", "web", "--", "sh", "-c", "echo begun; sleep 1000.25") as shell:
        shell.until(lambda screen: "begun" in screen, "the program")
        shell.process.send_signal(number)
        shell.ended()
        assert (shell.process.returncode, shell.echoes()) == (code, True)
    eventually(lambda: not harness.runs("sleep 1000.25"), "the end of the program")


def test_an_interrupt_ends_a_command_without_a_terminal(harness: ExecHarness) -> None:
    with harness.on_terminal("exec", "web", "--no-tty", "--", "sh", "-c", "echo begun; sleep 1000.125") as shell:
        shell.until(lambda screen: "begun" in screen, "the program")
        shell.process.send_signal(signal.SIGINT)
        shell.ended()
        assert shell.process.returncode == 130
    eventually(lambda: not harness.runs("sleep 1000.125"), "the end of the program")


def test_apply_shows_on_a_terminal_what_is_not_ready(harness: ExecHarness, tmp_path: Path) -> None:
    file = tmp_path / "slow.yaml"
    file.write_text(served("slow", replicas=1, env={"BROKEN": "1"}))
    command = [*COMMAND, "apply", "-f", str(file), "--ready"]
    with terminal(command, harness.environ, controlling=True) as shown:
        shown.until(lambda screen: "\nworkload slow  Loading: " in screen, "what is not ready, and why")
        shown.type(b"\x03")
        shown.ended()
        assert shown.process.returncode == 130
        assert shown.written.count("\x1b[?25h") == 1, "the cursor is there again"


def test_apply_prints_without_a_terminal_why_it_waits(harness: ExecHarness, tmp_path: Path) -> None:
    file = tmp_path / "stuck.yaml"
    file.write_text(served("stuck", replicas=1, command="no-such-program"))
    words = [*COMMAND, "apply", "-f", str(file), "--ready"]
    environ = {**os.environ, **harness.environ}
    with subprocess.Popen(words, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as waiting:
        assert waiting.stderr is not None
        shown = ""
        while "no-such-program" not in shown:
            line = waiting.stderr.readline()
            assert line, shown
            shown += line
        waiting.kill()
    assert "waiting for workload stuck: " in shown


def test_apply_waits_until_its_timeout(harness: ExecHarness, tmp_path: Path) -> None:
    file = tmp_path / "late.yaml"
    file.write_text(served("late", replicas=1, command="no-such-program"))

    def complain() -> bool:
        """Whether it names the cause, which is known once it was tried: on a busy machine later than its patience."""
        late = harness.run("apply", "-f", str(file), "--ready", "--timeout", "2s", group="")
        assert late.returncode == 1
        return re.search(rb"error: not ready after 2 s: workload late: \w+: .*no-such-program", late.stderr) is not None

    eventually(complain, "the cause is named")
    result = harness.run("apply", "-f", str(file), "--wait", "--timeout", "soon", group="")
    assert (result.returncode, b"--timeout soon: write " in result.stderr) == (2, True), result.stderr


def test_apply_does_not_wait_for_what_a_person_has_to_decide(harness: ExecHarness, tmp_path: Path) -> None:
    file = tmp_path / "web.yaml"
    file.write_text(served(replicas=1, env={"GREETING": "hello", "PS1": "inside> ", "MORE": "1"}))
    assert harness.run("suspend", "workload/shop/web", group="").returncode == 0
    try:
        result = harness.run("apply", "-f", str(file), "--ready", group="")
    finally:
        assert harness.run("resume", "workload/shop/web", group="").returncode == 0
    text = result.stderr.decode()
    assert (result.returncode, "error: waiting does not help: workload web: not applied yet: " in text) == (1, True), (
        text
    )
    assert "to continue: platform resume workload/shop/web" in text
    result = harness.run("apply", "-f", str(file), "--ready", group="")
    assert (result.returncode, result.stdout.decode().splitlines()[-1]) == (0, "everything is ready"), result.stderr


def test_what_cannot_run_is_explained(harness: ExecHarness, tmp_path: Path) -> None:
    result = harness.run("exec", "nix", "--", "true")
    assert (result.returncode, result.stderr) == (125, b"error: there is no workload/shop/nix\n")
    result = harness.run("exec", "web", "--container", "mian", "--", "true")
    assert (result.returncode, result.stdout) == (125, b"")
    assert b"main" in result.stderr
    result = harness.run("connect", "web", PLATFORM_ENDPOINT=f"unix://{tmp_path}/none.sock")
    assert result.returncode == 125
    assert b"no server answers at unix://" in result.stderr
    assert harness.run("exec", "web").returncode == 2


def test_a_key_with_the_permission_is_enough_over_tls(harness: ExecHarness) -> None:
    keys = {name: {"PLATFORM_TOKEN": key_of(harness, name)} for name in ("ci", "guest")}
    secure = {"PLATFORM_ENDPOINT": f"https://localhost:{harness.port}"}
    trusted = {**secure, "SSL_CERT_FILE": str(harness.sandbox.path / "authority.crt")}
    greet = ("exec", "web", "-q", "--", "sh", "-c", "echo $GREETING")
    assert harness.run(*greet, **trusted, **keys["ci"]).stdout == b"hello\n"
    assert harness.run(*greet[:2], "--insecure", *greet[2:], **secure, **keys["ci"]).stdout == b"hello\n"
    for environ, sentence in (
        ({**secure, **keys["ci"]}, b"is not trusted"),
        (trusted, b"platform login"),
        ({**trusted, **keys["guest"]}, b"access-report"),
    ):
        found = harness.run(*greet, **environ)
        assert (found.returncode, found.stdout) == (125, b"")
        assert sentence in found.stderr


def test_a_program_is_reached_through_a_proxy(harness: ExecHarness) -> None:
    proxy = PassingProxy(harness.port)
    with serving(proxy):
        environ = {
            "PLATFORM_ENDPOINT": "https://api.example.test",
            "HTTPS_PROXY": f"ann:p%40ss@127.0.0.1:{proxy.server_port}",
            "NO_PROXY": "",
            "PLATFORM_TOKEN": key_of(harness, "ci"),
        }
        found = harness.run("exec", "web", "--insecure", "-q", "--", "sh", "-c", "echo $GREETING", **environ)
    assert (found.returncode, found.stdout, found.stderr) == (0, b"hello\n", b"")
    assert proxy.asked == [("CONNECT api.example.test:443", "Basic YW5uOnBAc3M=")]


def key_of(harness: ExecHarness, account: str) -> str:
    """A new key of a service account."""
    made = harness.run("serviceaccount", "add-key", account, "-o", "json", group="")
    return str(json.loads(made.stdout)["key"])


def test_the_debug_output_hides_the_command(harness: ExecHarness) -> None:
    result = harness.run("exec", "web", "-d", "--", "true", "hunter2", PLATFORM_TOKEN="")
    assert b"> GET /org/acme/gvc/shop/workload/web/-exec\n" in result.stderr
    assert b"< 101" in result.stderr
    assert b"hunter2" not in result.stderr


def test_a_reader_may_end_first(harness: ExecHarness) -> None:
    shell = f"{' '.join(harness.command)} exec web -- yes | head -c 3; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        ["bash", "-c", shell],
        env={**os.environ, **harness.environ},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("y\ny1\n", "")
    eventually(lambda: not harness.runs("yes"), "the end of the program")


def test_a_program_may_end_before_its_input(harness: ExecHarness) -> None:
    found = harness.run("exec", "web", "-i", "--", "head", "-c", "3", content=bytes(4 * MEBIBYTE))
    assert (found.returncode, found.stdout) == (0, bytes(3))


@pytest.mark.slow
def test_a_program_that_reads_late_keeps_its_connection(harness: ExecHarness) -> None:
    """Later than any pong would have to come."""
    found = harness.run("exec", "web", "-i", "--", "sh", "-c", TAIL, "50", content=bytes(4 * MEBIBYTE))
    assert (found.returncode, found.stdout.strip()) == (0, str(4 * MEBIBYTE).encode())
