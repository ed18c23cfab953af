"""The Tab key: in real shells, with names of a real daemon, and in silence where there are none."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from reconciler.platform_cli import command_line
from reconciler.platform_cli.command_line import COMPLETE_VARIABLE, complete_names
from reconciler.platform_cli.main import run_command_line
from reconciler.platform_cli.transport import READ_SECONDS
from tests.platform_cli.kit import PlatformHarness, harness
from tests.platform_cli.test_client import ScriptedServer, answer
from tests.support.command_sandbox import workload
from tests.support.programs import tool
from tests.support.sandbox import PATIENCE, eventually
from tests.support.terminal import Terminal, terminal
from tests.support.waiting import serving

BIN = Path(sys.executable).parent
GVC = "kind: gvc\nname: {}\nspec: {{staticPlacement: {{locationLinks: [//location/here]}}}}\n"
FILES = {"shop/gvc.yaml": GVC.format("shop"), "shop/api.yaml": workload(), "ops/gvc.yaml": GVC.format("ops")}


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlatformHarness]:
    with harness(
        tmp_path_factory.mktemp("complete"), FILES, locations={"here": {"engine": "recorded"}}
    ) as platform_harness:
        platform_harness.environ |= {"PATH": f"{BIN}:{os.environ['PATH']}", "TERM": "dumb", "PS1": "> "}
        platform_harness.run("profile", "update", "work", "--org", "acme", "--gvc", "shop")
        yield platform_harness


def completed(shop: PlatformHarness, words: str, **environ: str) -> list[str]:
    """What completes the last of ``words``."""
    asked = {
        "COMP_WORDS": f"platform {words}",
        "COMP_CWORD": str(words.count(" ") + 1),
        COMPLETE_VARIABLE: "bash_complete",
    }
    done = subprocess.run(
        [BIN / "platform"],
        env={**os.environ, **shop.environ, **asked, COMPLETE_VARIABLE: "bash_complete", **environ},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    return [line.partition(",")[2] for line in done.stdout.splitlines() if line]


def names(shop: PlatformHarness, words: str, **environ: str) -> list[str]:
    """What completes the last of ``words``, asked again while no name comes: a busy machine answers late."""
    return eventually(lambda: completed(shop, words, **environ), words)


def test_words_options_and_names_are_completed(shop: PlatformHarness) -> None:
    assert completed(shop, "workl") == ["workload"]
    assert completed(shop, "workload get-rep") == ["get-replicas"]
    assert completed(shop, "workload get --outp") == ["--output"]
    assert completed(shop, "workload get -o json-") == ["json-slim"]
    assert names(shop, "w get a", PLATFORM_GVC="shop") == ["api"]
    assert names(shop, "workload get --gvc shop a") == names(shop, "--gvc shop workload delete a") == ["api"]
    assert names(shop, "--profile work workload edit a") == ["api"]
    assert names(shop, "workload get --gvc ") == names(shop, "gvc get ") == ["ops", "shop"]
    assert names(shop, "sync m") == names(shop, "plan ") == names(shop, "suspend m") == ["main"]
    assert names(shop, "--gvc shop restart a") == names(shop, "scale --gvc shop a") == ["api"]
    assert names(shop, "workload get --profile w") == names(shop, "logout w") == ["work"]


def test_nothing_is_printed_where_no_names_come(shop: PlatformHarness, tmp_path: Path) -> None:
    words = "workload get --gvc shop a"
    assert completed(shop, words, PLATFORM_ENDPOINT=f"unix://{tmp_path}/none") == []
    assert completed(shop, words, PLATFORM_ENDPOINT="nonsense") == []
    assert completed(shop, words, PLATFORM_TOKEN="rk_unknown", ALL_PROXY="socks5://x") == []
    assert completed(shop, "workload get a", PLATFORM_PROFILE="nix") == []
    (tmp_path / "platform").mkdir()
    (tmp_path / "platform" / "profiles.json").write_text("{")
    for each in (words, "profile get w"):
        assert completed(shop, each, XDG_CONFIG_HOME=str(tmp_path)) == []


def test_a_server_that_does_not_answer_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        options = {"endpoint": f"http://127.0.0.1:{silent.getsockname()[1]}", "org": "acme", "token": "rk_x"}
        monkeypatch.setattr(command_line, "COMPLETION_SECONDS", 0.05)
        began = time.monotonic()
        assert complete_names("gvc", options, "") == []
        assert time.monotonic() - began < READ_SECONDS / 2


class SilentAboutNames(BaseHTTPRequestHandler):
    """Answers that nothing exists; a question for names waits until ``ended``."""

    protocol_version = "HTTP/1.1"
    ended = threading.Event()
    asked = threading.Event()

    def do_GET(self) -> None:
        """Answer, or wait."""
        if "namePrefix" in self.path:
            self.asked.set()
            self.ended.wait()
            return
        body = b'{"message": "there is no gvc/nix"}'
        self.send_response(404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing: the test shows what was asked."""


def test_a_hint_at_a_name_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command_line, "COMPLETION_SECONDS", 0.05)
    server = ThreadingHTTPServer(("127.0.0.1", 0), SilentAboutNames)
    with serving(server):
        endpoint = f"http://127.0.0.1:{server.server_port}"
        began = time.monotonic()
        assert run_command_line(["--endpoint", endpoint, "--org", "acme", "--token", "rk_x", "gvc", "get", "nix"]) == 1
        assert time.monotonic() - began < READ_SECONDS / 2
        assert capsys.readouterr().err == "error: there is no gvc/nix\n"
        assert SilentAboutNames.asked.is_set()
        SilentAboutNames.ended.set()


def test_a_login_is_not_renewed_for_a_completion(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = ScriptedServer(answer(body={"items": [{"name": "shop"}]}))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "platform").mkdir()
    (tmp_path / "platform" / "profiles.json").write_text(
        '{"profiles": {"default": {"token": "rs_old", "refreshToken": "rr_old", "expires": 1.0}}}'
    )
    options = {"endpoint": f"http://127.0.0.1:{server.server_port}", "org": "acme"}
    monkeypatch.setattr(command_line, "COMPLETION_SECONDS", PATIENCE)
    assert complete_names("gvc", options, "s") == ["shop"]
    assert [(words.partition("?")[0], headers["authorization"]) for words, headers in server.asked] == [
        ("GET /org/acme/gvc", "Bearer rs_old")
    ]


@pytest.mark.parametrize(
    ("shell", "options", "load"),
    [
        ("bash", ["--norc"], "source {}"),
        ("zsh", ["-f"], "autoload -U compinit && compinit -u -D && source {} && compdef _platform_completion platform"),
    ],
)
def test_a_shell_completes_with_the_tab_key(
    shop: PlatformHarness, tmp_path: Path, shell: str, options: list[str], load: str
) -> None:
    script = tmp_path / "script"
    script.write_text(shop.run("misc", "install-completion", "--print", "--shell", shell).stdout)
    environ = {**shop.environ, "ZDOTDIR": str(tmp_path)}
    with terminal([tool(shell, shell), *options, "-i"], environ, 200, controlling=True) as shown:
        shown.type(f'{load.format(script)}; echo loa""ded\r'.encode())
        shown.until(lambda screen: "\nloaded" in screen, "the script is loaded")
        shown.type(b"platform workload get --gvc s")
        complete(shown, r"get --gvc shop\b")
        shown.type(b"a")
        complete(shown, r"get --gvc shop\W+api\b")


def complete(shown: Terminal, pattern: str) -> None:
    """Press the Tab key, and again while no name came: a busy machine does not answer in the time for completions."""

    def is_complete(screen: str) -> bool:
        return re.search(pattern, screen) is not None

    for _ in range(20):
        shown.type(b"\t")
        with suppress(AssertionError):
            shown.until(is_complete, pattern, patience=2.0)
            return
    shown.until(is_complete, pattern)


def test_fish_completes(shop: PlatformHarness, tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text(shop.run("misc", "install-completion", "--print", "--shell", "fish").stdout)
    asked = f"source {script}; complete --do-complete 'platform workload get --gvc shop a'"
    command = [tool("fish", "fish"), "--no-config", "--command", asked]
    environ = {**os.environ, **shop.environ}
    assert eventually(lambda: subprocess.check_output(command, env=environ, text=True), asked) == "api\n"
