"""The platform command on a real terminal: prompts, editors, pagers, Ctrl-C, colours, and narrow windows."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.engines.host.logs.kit import LogHarness, place
from tests.platform_cli.kit import PlatformHarness, harness
from tests.platform_cli.test_client import ScriptedServer, answer
from tests.support.command_sandbox import workload
from tests.support.examples import thin_out
from tests.support.terminal import Terminal, terminal

COMMAND = (sys.executable, "-m", "reconciler.platform_cli")
GVC = "kind: gvc\nname: shop\nspec: {staticPlacement: {locationLinks: [//location/here]}}\n"
WAITING = 'trap "echo interrupted; exit 130" INT; echo editing $(stty size); sleep 30 & wait'
"""An editor that does nothing until Ctrl-C."""


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlatformHarness]:
    groups = "---\n".join(f"kind: group\nname: group-{number:02}\n" for number in range(30))
    files = {"shop/gvc.yaml": GVC, "shop/api.yaml": workload(), "groups.yaml": groups}
    with harness(
        tmp_path_factory.mktemp("terminal"), files, locations={"here": {"engine": "recorded"}}
    ) as platform_harness:
        platform_harness.environ |= {"PLATFORM_GVC": "shop", "TERM": "xterm", "PAGER": "sed s/^/paged:/"}
        LogHarness(platform_harness.sandbox.path).taken("listening\n", place("web"))
        yield platform_harness


@contextmanager
def on_terminal(shop: PlatformHarness, words: str, width: int = 100, **environ: str) -> Iterator[Terminal]:
    """A command on a terminal of 24 lines that it controls."""
    with terminal([*COMMAND, *words.split()], {**shop.environ, **environ}, width, controlling=True) as opened:
        yield opened


def files(*folders: Path) -> dict[Path, bytes]:
    """The content of all files."""
    return {path: path.read_bytes() for folder in folders for path in folder.rglob("*") if path.is_file()}


def endless_login() -> str:
    """The address of a server at which a login is never allowed."""
    begun = {
        "verification_uri_complete": "https://login.example.com",
        "user_code": "WDJB",
        "expires_in": 600,
        "device_code": "d",
        "interval": 1,
    }
    server = ScriptedServer(answer(body=begun), answer(400, {"error": "authorization_pending", "message": "wait"}))
    return f"http://127.0.0.1:{server.server_port}"


PROMPTS = {
    "login new --token-stdin": "Token: ",
    "login new --bootstrap": "Token: ",
    "rest post /org/acme/gvc --file -": "Ctrl-D ends the text",
    "image docker-login --registry registry.example.com --username ann": "Password: ",
    "secret create-opaque --name typed --file -": "Ctrl-D ends the text",
    "apply -f -": "Ctrl-D ends the text",
    "workload patch api -f -": "Ctrl-D ends the text",
    "gvc edit shop": "editing 24 100",
    "login new --device --endpoint ENDPOINT": "compare the code WDJB",
    "login new --endpoint ENDPOINT": "Log in with the browser",
    "workload logs web --follow": "listening",
}
"""Commands that wait for a person, each with what it shows then."""


@pytest.mark.parametrize("words", thin_out(PROMPTS))
def test_an_interrupt_ends_every_prompt_and_writes_nothing(shop: PlatformHarness, words: str, tmp_path: Path) -> None:
    (tmp_path / "editor").write_text(WAITING)
    before, commit = files(shop.home), shop.sandbox.repo.git("rev-parse", "main")
    environ = {"EDITOR": f"sh {tmp_path}/editor", "TMPDIR": str(tmp_path), "BROWSER": "true"}
    shop.relay.requests.clear()
    with on_terminal(shop, words.replace("ENDPOINT", endless_login()), **environ) as shown:
        shown.until(lambda screen: PROMPTS[words] in screen, "the prompt")
        shown.interrupt()
        shown.ended()
        assert shown.process.returncode == 130, shown.screen
        assert shown.echoes()
        assert "Traceback" not in shown.screen
    assert (files(shop.home), shop.sandbox.repo.git("rev-parse", "main")) == (before, commit)
    assert [path.name for path in tmp_path.iterdir()] == ["editor"]
    assert not [each for each in shop.relay.requests if not each.startswith("GET ")]


def test_an_editor_has_its_own_ctrl_c(shop: PlatformHarness, tmp_path: Path) -> None:
    """As in vi, where it ends a mode."""
    editor = 'trap "" INT; echo editing; head -n 1 > /dev/null; sed -i "s/^description: .*/description: $NEW/" "$1"'
    (tmp_path / "editor").write_text(editor)
    with on_terminal(shop, "gvc edit shop", EDITOR=f"sh {tmp_path}/editor", NEW="typed") as shown:
        shown.until(lambda screen: "editing" in screen, "the editor")
        shown.type(b"\x03")
        shown.type(b"\r")
        assert shown.ended().endswith("gvc shop changed")
        assert shown.process.returncode == 0


def test_a_text_that_was_saved_survives_an_interrupt(shop: PlatformHarness, tmp_path: Path) -> None:
    (tmp_path / "editor").write_text(f'echo "# mine" >> "$1"; {WAITING}')
    with on_terminal(shop, "gvc edit shop", EDITOR=f"sh {tmp_path}/editor", TMPDIR=str(tmp_path)) as shown:
        shown.until(lambda screen: "editing" in screen, "the editor")
        shown.interrupt()
        assert "nothing was changed; the text is still in" in shown.ended().replace("\n", "")
        assert shown.process.returncode == 130
    [saved] = tmp_path.glob("gvc-*.yaml")
    assert saved.read_text().endswith("# mine\n")


def test_a_token_is_not_shown_while_it_is_typed(shop: PlatformHarness) -> None:
    with on_terminal(shop, "login typed --token-stdin") as shown:
        shown.until(lambda screen: "Token: " in screen, "the prompt")
        shown.type(b"rk_planted\r")
        screen = shown.ended()
        assert "rk_planted" not in screen
        assert "does not accept the token, so nothing is stored" in " ".join(screen.split())
        assert shown.process.returncode == 1
    assert not (shop.home / "config" / "platform" / "profiles.json").exists()


def piped(shop: PlatformHarness, words: str, **environ: str) -> str:
    """The output of a command with pipes."""
    environ = {**os.environ, **shop.environ, **environ}
    return subprocess.run([*COMMAND, *words.split()], env=environ, capture_output=True, text=True, check=True).stdout


@pytest.mark.slow
def test_a_pager_and_colours_are_for_terminals_alone(shop: PlatformHarness) -> None:
    with on_terminal(shop, "gvc get") as short, on_terminal(shop, "group get") as long:
        short.ended()
        assert "\x1b[1mNAME" in short.written
        assert "paged:" not in short.screen
        assert long.ended().count("paged:") > 30
    for words, environ in (
        ("gvc get", {"NO_COLOR": "1"}),
        ("gvc get --no-color", {}),
        ("gvc get --color=false", {}),
        ("gvc get --color false", {}),
    ):
        with on_terminal(shop, words, **environ) as plain:
            plain.ended()
            assert "\x1b" not in plain.written
            assert plain.written.startswith("NAME")
    for words in ("gvc get", "group get", "group get -o json"):
        text = piped(shop, words)
        assert "\x1b" not in text
        assert "paged:" not in text


@pytest.mark.parametrize("width", [60, 200])
def test_the_help_fits_the_window_and_tables_are_whole(shop: PlatformHarness, width: int) -> None:
    with on_terminal(shop, "workload exec --help", width) as shown, on_terminal(shop, "gvc get", width) as table:
        assert max(map(len, shown.ended().splitlines())) <= width
        assert " ".join(table.ended().split()) == " ".join(piped(shop, "gvc get").split())


@pytest.fixture
def doomed(shop: PlatformHarness) -> PlatformHarness:
    """Several kinds of things to delete."""
    for words in (
        "group create --name first",
        "group create --name second",
        "serviceaccount create --name robot",
        "profile update spare --org acme",
        "gvc create --name gone --location here",
        "workload create --name web --image nginx --port 80 --gvc gone",
    ):
        made = shop.run(*words.split())
        assert made.returncode == 0, made
    key = shop.run("serviceaccount", "add-key", "robot", "--description", "x", "-o", "json")
    shop.environ["KEY"] = json.loads(key.stdout)["name"]
    return shop


def test_a_person_sees_each_delete_and_a_program_does_not(doomed: PlatformHarness) -> None:
    key = doomed.environ.pop("KEY")
    texts = {
        "group delete first nope": "group first deleted",
        "gvc delete-all-workloads gone": "workload web deleted",
        f"serviceaccount remove-key robot --key {key}": f"key {key} revoked",
        "serviceaccount delete robot": "serviceaccount robot deleted",
        "profile delete spare": "profile spare deleted",
    }
    for words, text in texts.items():
        with on_terminal(doomed, words) as shown:
            assert text in shown.ended(), words
    done = doomed.run("group", "delete", "second")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
