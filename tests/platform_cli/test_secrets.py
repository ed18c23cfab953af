"""Planted credentials and secret values: where a command shows them on purpose, and that they are nowhere else."""

from __future__ import annotations

import json
import os
import re
import secrets
import subprocess
import sys
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from reconciler.api.authentication import BOOTSTRAP_FILE
from reconciler.platform_cli.command_line import COMPLETE_VARIABLE, all_rows
from reconciler.platform_cli.table.row import Row
from tests.platform_cli.kit import PlatformHarness, harness
from tests.platform_cli.test_client import ScriptedServer, answer
from tests.support.terminal import terminal

VALUE = f"planted-{secrets.token_hex(8)}"
"""The value of every secret, and every password."""
FILES = {
    "value.txt": VALUE,
    "key.json": json.dumps({"accessKey": "AKIAIOSFODNN7EXAMPLE", "secretKey": VALUE}),
    "secret.yaml": f"kind: secret\nname: applied\ntype: opaque\ndata: {{payload: {VALUE}, encoding: plain}}\n",
    "broken.yaml": f"kind: secret\nname: broken\ntype: opaque\ndata: {{payload: [{VALUE}], encoding: plain}}\n",
    "torn.yaml": f"kind: secret\nname: torn\ndata: {{payload: '{VALUE}\n",
}
SPY = """#!/bin/sh
for each in /proc/[0-9]*/cmdline; do tr '\\0' ' ' < "$each" >> "$SPY_FILE" 2>/dev/null; done
echo >> "$SPY_FILE"
[ -n "$1" ] || cat > /dev/null
"""
"""An editor, and a pager: writes down the command line of every process."""


class Command(NamedTuple):
    """A command line with its input; ``shows`` is whether it prints secrets on purpose, on standard output."""

    words: str
    text: str = ""
    shows: bool = False
    code: int = 0


COMMANDS = (
    Command("secret create-opaque --name opaque --desc described --file -", VALUE),
    Command("secret create-dictionary --name env --entry A=@value.txt"),
    Command("secret create-userpass --name login --username ann --password-file value.txt"),
    Command("secret create-aws --name aws --file key.json"),
    Command("secret create-keypair --name pair --secret-key value.txt --passphrase-file -", VALUE, code=1),
    Command("apply --file secret.yaml --verbose"),
    Command("apply --file broken.yaml", code=1),
    Command("apply --file torn.yaml", code=1),
    Command("secret patch opaque --file -", f"data: {{payload: {VALUE}-2, encoding: plain}}"),
    Command("secret set opaque payload -", VALUE),
    Command("secret set env B --file value.txt"),
    Command("secret set made KEY", VALUE),
    Command("secret unset env B"),
    Command(f"secret set env B {VALUE}", code=2),
    Command("secret get"),
    Command("secret get opaque -o json"),
    Command("secret get opaque -o tf"),
    Command("secret query --property type=opaque -o yaml"),
    Command("secret reveal opaque", shows=True),
    Command("secret reveal env -o json", shows=True),
    Command("secret edit opaque"),
    Command("secret eventlog opaque"),
    Command("rest get /org/acme/secret/opaque"),
    Command("rest get /org/acme/secret/opaque/-reveal", shows=True),
    Command("rest put /org/acme/secret/applied --file secret.yaml"),
    Command("cloudaccount create-azure --name az --secret code --url https://x.azurewebsites.net/api --code -", VALUE),
    Command("image docker-login --registry registry.example.com --username ann", VALUE),
    Command("image docker-login --registry registry.example.com"),
    Command("delete --file secret.yaml"),
    Command("serviceaccount get-keys ci"),
    Command("profile get"),
    Command("profile get -o json"),
    Command("profile token machine", shows=True),
    Command("whoami"),
    Command(f"workload exec web -- login --password {VALUE}", code=125),
)
"""Everything that takes, sends or receives a secret; each runs with the key of a profile, and with --debug."""


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlatformHarness]:
    account = "kind: serviceaccount\nname: ci\n---\n"
    policies = "".join(
        f"---\nkind: policy\nname: {kind}s\ntargetKind: {kind}\ntarget: all\n"
        "bindings: [{permissions: [manage], principalLinks: [//serviceaccount/ci]}]\n"
        for kind in ("secret", "cloudaccount", "serviceaccount", "workload", "org")
    )
    gvc = "kind: gvc\nname: shop\nspec: {staticPlacement: {locationLinks: [//location/here]}}\n---\n"
    files = {"all.yaml": f"{account}{gvc}{policies}"}
    with harness(
        tmp_path_factory.mktemp("secrets"), files, locations={"here": {"engine": "recorded"}}
    ) as platform_harness:
        for name, content in FILES.items():
            (platform_harness.home / name).write_text(content)
        spy = platform_harness.home / "spy"
        spy.write_text(SPY)
        spy.chmod(0o700)
        platform_harness.environ |= {"EDITOR": "sed -i s/described/edited/", "PLATFORM_GVC": "shop"}
        yield platform_harness


def run(shop: PlatformHarness, key: str, command: Command) -> subprocess.CompletedProcess[str]:
    """A command with the credential of the profile and with debugging; nothing secret is where it should not be."""
    done = shop.run("--profile", "machine", "--debug", *command.words.split(), text=command.text)
    assert done.returncode == command.code, (command, done)
    shop.wait_until_applied()
    private = done.stderr if command.shows else done.stdout + done.stderr
    assert not [each for each in (VALUE, key) if each in private], (command, done)
    assert not command.shows or VALUE in done.stdout or key in done.stdout, (command, done)
    return done


def test_no_command_shows_or_stores_a_secret_where_it_should_not(shop: PlatformHarness) -> None:
    before = {path for path in shop.home.rglob("*") if path.is_file()}
    added = shop.run("serviceaccount", "add-key", "ci", "-o", "json", "--debug")
    key, name = (json.loads(added.stdout)[name_of] for name_of in ("key", "name"))
    stored = shop.run("login", "machine", "--token-stdin", "--debug", text=key)
    assert (stored.returncode, key in added.stderr + stored.stdout + stored.stderr) == (0, False)
    for command in COMMANDS:
        run(shop, key, command)
    private = [shop.home / "config" / "platform" / name_of for name_of in ("profiles.json", "registries.json")]
    assert [path.stat().st_mode & 0o777 for path in private] == [0o600, 0o600]
    for path in {path for path in shop.home.rglob("*") if path.is_file()} - before - {*private}:
        assert not [name_of for name_of in (VALUE, key) if name_of in path.read_text()], path
    run(shop, key, Command(f"serviceaccount remove-key ci --key {name}"))
    run(shop, key, Command("whoami", code=1))


def test_a_session_ends_at_the_server_and_in_the_profile(shop: PlatformHarness) -> None:
    token = (shop.sandbox.state / BOOTSTRAP_FILE).read_text().strip()
    shown = shop.run("login", "boot", "--bootstrap", "--debug", text=token)
    session = shop.run("profile", "token", "boot").stdout.strip()
    ended = shop.run("logout", "boot", "--debug")
    assert (shown.returncode, ended.returncode, session[:3]) == (0, 0, "rs_")
    assert not [each for each in (token, session) if each in shown.stdout + shown.stderr + ended.stdout + ended.stderr]
    assert session not in (shop.home / "config" / "platform" / "profiles.json").read_text()
    assert shop.run("whoami", environ={"PLATFORM_TOKEN": session}).returncode == 1


def test_no_process_has_a_secret_on_its_command_line(shop: PlatformHarness) -> None:
    """Neither the command itself, nor an editor or a pager."""
    key = json.loads(shop.run("serviceaccount", "add-key", "ci", "-o", "json").stdout)["key"]
    assert shop.run("login", "spied", "--token-stdin", text=key).returncode == 0
    assert shop.run("secret", "create-opaque", "--name", "seen", "--file", "-", text=VALUE + 40 * "\n").returncode == 0
    shop.wait_until_applied()
    environ = {**shop.environ, "EDITOR": str(shop.home / "spy"), "PAGER": str(shop.home / "spy")}
    for words in ("secret edit seen", "secret reveal seen"):
        (shop.home / "spied").unlink(missing_ok=True)
        command = [sys.executable, "-m", "reconciler.platform_cli", *words.split(), "--profile", "spied"]
        with terminal(command, {**environ, "SPY_FILE": str(shop.home / "spied")}) as shown:
            shown.ended()
        assert shown.process.returncode == 0, shown.screen
        spied = (shop.home / "spied").read_text(errors="replace")  # programs of others have any bytes
        assert words in spied
        assert not [each for each in (VALUE, key) if each in spied]


def test_a_crash_shows_its_place_and_no_data(shop: PlatformHarness) -> None:
    """A server that is broken or hostile sends text where a number has to be."""
    server = ScriptedServer(
        answer(body={"verification_uri_complete": "x", "user_code": "y", "expires_in": VALUE, "device_code": VALUE})
    )
    done = shop.run("login", "broken", "--device", "--endpoint", f"http://127.0.0.1:{server.server_port}")
    assert done.returncode == 1
    assert "this is a bug" in done.stderr
    assert VALUE not in done.stdout + done.stderr


def test_completion_stores_nothing(shop: PlatformHarness) -> None:
    before = {path for path in shop.home.rglob("*") if path.is_file()}
    asked = {"COMP_WORDS": "platform serviceaccount get c", "COMP_CWORD": "3", COMPLETE_VARIABLE: "bash_complete"}
    done = subprocess.run(
        [sys.executable, "-m", "reconciler.platform_cli"],
        env={**os.environ, **shop.environ, **asked},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "ci" in done.stdout
    assert VALUE not in done.stdout + done.stderr
    assert {path for path in shop.home.rglob("*") if path.is_file()} == before


def test_no_command_shows_its_credential(shop: PlatformHarness) -> None:
    """Each command once, with a server that sends the credential back, and with one that refuses."""
    token = f"rk_{secrets.token_hex(8)}"
    (shop.home / "object.yaml").write_text("kind: group\nname: x\n")
    (shop.home / "compose.yaml").write_text("services: {web: {image: nginx:1.27, environment: {MODE: x}}}\n")
    tokens = dict.fromkeys(("token", "access_token", "refresh_token"), token)
    for status in (200, 403):
        server = ScriptedServer(answer(status, {"name": "x", "items": [], "message": "no", "links": [], **tokens}))
        environ = {"PLATFORM_ENDPOINT": f"http://127.0.0.1:{server.server_port}", "PLATFORM_TOKEN": token}
        for row in all_rows():
            words = [*row.words, *sample(row)]
            done = shop.run(*words, "--debug", text=f"{token}\n", environ=environ)
            assert row.instead or server.asked or {row.words[0], " ".join(row.words)} & LOCAL, (words, done)
            server.asked.clear()
            assert "this is a bug" not in done.stderr, (words, done)
            # Results show what the server sends.
            assert token not in done.stderr + (done.stdout if status == 403 else ""), (words, done)


LOCAL = {"agent manifest", "agent up", "convert", "logout", "misc", "profile", "stack manifest"}
"""Commands that ask no server, or none without a profile."""
_MEMBER = ["--email", "x"]
EXTRA = {
    "add-binding": _MEMBER,
    "add-member": _MEMBER,
    "remove-binding": _MEMBER,
    "remove-member": _MEMBER,
    "cloudaccount create-aws": ["--name", "x", "--role-arn", "x"],
    "cloudaccount create-gcp": ["--name", "x", "--project-id", "x"],
    "cloudaccount create-azure": ["--name", "x", "--secret", "x", "--url", "x", "--code", "-"],
    "policy create": ["--all"],
    "install-completion": ["--print", "--shell", "bash"],
    "login": ["--bootstrap"],
    "tag": ["--tag", "x=y"],
    "hold": ["--for", "60s"],
    "rollback": ["--previous"],
    "scale": ["3"],
}
"""Options of which a command needs some."""


def sample(row: Row) -> list[str]:
    """The least that a command takes."""
    options = [
        word
        for option in row.options
        if option.required
        for word in (option.names.split("/")[-1], option.choices[0] if option.choices else sample_value(option.metavar))
    ]
    arguments = re.findall(r"<(\w+)", row.argument)
    return (
        ["x=y" if name == "variable" else "x" for name in arguments]
        + options
        + EXTRA.get(row.words[-1], EXTRA.get(" ".join(row.words), []))
    )


def sample_value(metavar: str) -> str:
    if metavar == "FILE":
        return "object.yaml"
    return {"EMAIL": "ann@example.com"}.get(metavar) or ("x=y" if "=" in metavar else "1")
