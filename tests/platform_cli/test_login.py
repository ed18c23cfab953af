"""Logins of a person with the command: a real daemon, a real OpenID provider, and a browser that is a program."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import httpx2
import pytest

from reconciler.platform_cli.keyring import TokenKeyring
from reconciler.platform_cli.profiles import Profile
from tests.api.conftest import FILES
from tests.platform_cli.kit import PlatformHarness, harness
from tests.support.keyring import session_bus, unlocked_keyring
from tests.support.oidc import PeopleProvider, people_provider
from tests.support.processes import free_ports

BROWSER = """#!{python}
import sys
sys.path.insert(0, {root!r})
from tests.platform_cli.test_login import browse
browse(sys.argv[1], {person!r})
"""
COMMAND = (sys.executable, "-m", "reconciler.platform_cli")


def browse(url: str, person: str) -> httpx2.Response:
    """What a browser shows in the end after ``person`` opened ``url``, and logged in at the provider."""
    with httpx2.Client() as browser:
        answer = browser.get(url)
        assert "location" in answer.headers, (answer.status_code, answer.text)
        page = answer.headers["location"]
        answer = browser.post(page, data={"sub": person})
        while "location" in answer.headers:
            page = urljoin(page, answer.headers["location"])
            answer = browser.get(page)
        return answer


class LoginHarness(PlatformHarness):
    """A harness whose daemon has a provider; ``address`` is where its API listens."""

    address: str

    def begin(self, *words: str, browser: str = "") -> subprocess.Popen[str]:
        """A command in a process of its own, with a program for a ``browser``."""
        environ = {**os.environ, **self.environ, "PLATFORM_ENDPOINT": self.address, "BROWSER": browser}
        return subprocess.Popen(
            [*COMMAND, *words],
            env=environ,
            cwd=self.home,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def browser(self, person: str) -> str:
        """A program with which ``person`` logs in."""
        path = self.home / f"browser-{person}"
        root = str(Path(__file__).parents[2])
        path.write_text(BROWSER.format(python=sys.executable, root=root, person=person))
        path.chmod(0o700)
        return f"{path} %s &"

    @property
    def file(self) -> Path:
        """The file of the profiles."""
        return self.home / "config" / "platform" / "profiles.json"

    def stored(self) -> str:
        """The text of that file, "" if no test before has stored a profile."""
        return self.file.read_text() if self.file.exists() else ""

    def profile(self, name: str) -> dict[str, Any]:
        """A stored profile."""
        found: dict[str, Any] = json.loads(self.file.read_text())["profiles"][name]
        return found

    def change(self, name: str, **members: Any) -> None:
        """Change the stored profile."""
        stored = json.loads(self.file.read_text())
        stored["profiles"][name] |= members
        self.file.write_text(json.dumps(stored))

    def whoami(self, name: str) -> str:
        """The principal of a profile, by a command of this process; the message if it is refused."""
        done = self.run("whoami", "--profile", name, "-o", "json", environ={"PLATFORM_ENDPOINT": self.address})
        return json.loads(done.stdout)["principal"] if done.returncode == 0 else done.stderr


@pytest.fixture(scope="module")
def provider() -> Iterator[PeopleProvider]:
    with people_provider() as people:
        people.add_person("ann", email="ann@example.com", email_verified=True)
        people.add_person("eve", email="eve@evil.example.com")
        yield people


@pytest.fixture(scope="module")
def person(provider: PeopleProvider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoginHarness]:
    path = tmp_path_factory.mktemp("login")
    (path / "oidc-secret").write_text("client-secret\n")
    [port] = free_ports(1)
    oidc = {"issuer": provider.issuer, "clientId": "reconciler", "clientSecretFile": str(path / "oidc-secret")}
    address = f"127.0.0.1:{port}"
    with harness(path / "site", FILES, api={"address": address, "oidc": oidc}) as made:
        found = LoginHarness.__new__(LoginHarness)
        found.__dict__.update(made.__dict__, address=f"http://{address}")
        yield found


def test_a_person_logs_in_with_the_browser_of_this_machine(person: LoginHarness) -> None:
    command = person.begin("login", "web", browser=person.browser("ann"))
    out, err = command.communicate(timeout=60)
    assert (command.returncode, out) == (0, "logged in; the profile web is stored\n"), err
    assert err.startswith(f"Log in with the browser: {person.address}/login?redirect_uri=http%3A%2F%2F127.0.0.1%3A")
    assert "code_challenge_method=S256" in err
    profile = person.profile("web")
    assert (profile["org"], profile["endpoint"]) == ("acme", person.address)
    assert 800 < profile["expires"] - time.time() <= 900
    assert person.file.stat().st_mode & 0o777 == 0o600
    assert profile["token"] not in out + err
    assert profile["refreshToken"] not in out + err
    assert person.whoami("web") == "user/ann@example.com"


def test_a_person_whom_the_server_refuses_reads_why(person: LoginHarness) -> None:
    command = person.begin("login", "eve", browser=person.browser("eve"))
    out, err = command.communicate(timeout=60)
    assert (command.returncode, out) == (1, "")
    assert "error: the login was refused: eve@evil.example.com is no member of acme; ask for an invitation" in err
    assert not person.file.exists() or "eve" not in json.loads(person.file.read_text())["profiles"]


def test_a_login_that_is_denied_at_the_provider_ends_at_once(person: LoginHarness, provider: PeopleProvider) -> None:
    command = person.begin("login", "no", browser="true %s")
    assert command.stderr is not None
    url = command.stderr.readline().partition(": ")[2].strip()
    with httpx2.Client() as client:
        asked = client.get(url)
        denied = provider.log_in(asked.headers["location"], "ann", action="deny")
        page = client.get(client.get(denied).headers["location"])
    assert "The login was refused" in page.text
    _, err = command.communicate(timeout=60)
    assert (command.returncode, "error: the login was refused: " in err) == (1, True), err


def test_an_answer_that_this_command_did_not_ask_for_is_not_taken(person: LoginHarness) -> None:
    """Another page of the browser, or another program of this machine, cannot end or hijack a login."""
    command = person.begin("login", "careful", browser="true %s")
    assert command.stderr is not None
    url = command.stderr.readline().partition(": ")[2].strip()
    match = re.search(r"redirect_uri=http%3A%2F%2F127\.0\.0\.1%3A(\d+)%2Fcallback", url)
    assert match, url
    there = f"http://127.0.0.1:{match[1]}"
    assert httpx2.get(f"{there}/favicon.ico").status_code == 404
    assert httpx2.get(f"{there}/callback?code=stolen&state=guessed").status_code == 200
    with socket.create_connection(("127.0.0.1", int(match[1]))):  # a browser opens connections in advance
        assert browse(url, "ann").text.count("You are logged in") == 1
    _, err = command.communicate(timeout=60)
    assert command.returncode == 0, err
    assert person.whoami("careful") == "user/ann@example.com"


def test_a_person_allows_a_machine_without_a_browser_on_another_one(person: LoginHarness) -> None:
    command = person.begin("login", "far", "--device")
    assert command.stderr is not None
    match = re.fullmatch(r"Open (\S+) and compare the code (\S+)\n", command.stderr.readline())
    assert match
    page = _device_page(match[1], "ann")
    form = {"identity": page[1], "user_code": match[2], "answer": "allow"}
    assert "Logged in" in httpx2.post(f"{person.address}/login/device/answer", data=form).text
    out, err = command.communicate(timeout=60)
    assert (command.returncode, out) == (0, "logged in; the profile far is stored\n"), err
    assert person.whoami("far") == "user/ann@example.com"


def test_a_machine_that_is_denied_is_not_logged_in(person: LoginHarness) -> None:
    command = person.begin("login", "denied", "--device")
    assert command.stderr is not None
    found = re.fullmatch(r"Open (\S+) and compare the code (\S+)\n", command.stderr.readline())
    assert found
    form = {"identity": _device_page(found[1], "ann")[1], "user_code": found[2], "answer": "deny"}
    httpx2.post(f"{person.address}/login/device/answer", data=form)
    _, err = command.communicate(timeout=60)
    assert (command.returncode, err.startswith("error: the login is refused: ")) == (1, True), err


def test_a_token_that_ends_is_renewed_once_for_all_commands(person: LoginHarness) -> None:
    _log_in(person, "renewed")
    before = person.profile("renewed")
    person.change("renewed", expires=time.time() + 5)
    commands = [person.begin("whoami", "--profile", "renewed") for _ in range(4)]
    for command in commands:
        out, err = command.communicate(timeout=60)
        assert (command.returncode, "user/ann@example.com" in out, err) == (0, True, "")
    after = person.profile("renewed")
    assert after["token"] != before["token"]
    assert after["refreshToken"] != before["refreshToken"]
    person.change("renewed", expires=time.time())
    printed = person.run("profile", "token", "renewed", environ={"PLATFORM_ENDPOINT": person.address}).stdout
    assert printed.strip() == person.profile("renewed")["token"] != after["token"]


def test_a_login_that_is_over_names_the_command_that_begins_another(person: LoginHarness) -> None:
    _log_in(person, "over")
    person.change("over", expires=1.0, refreshToken="rr_gone", token="rs_gone")
    assert "the credential of the profile 'over' is not valid: " in (message := person.whoami("over"))
    assert "Log in again: platform login" in message


def test_a_logout_ends_the_session_at_the_server_too(person: LoginHarness) -> None:
    _log_in(person, "short")
    token = person.profile("short")["token"]
    environ = {"PLATFORM_ENDPOINT": person.address}
    assert person.run("logout", "short", environ=environ).stdout == "logged out of the profile short\n"
    stored = person.profile("short")
    assert not {"token", "refreshToken", "expires"} & stored.keys() or not (stored["token"] or stored["refreshToken"])
    assert person.run("whoami", "--token", token, environ=environ).returncode == 1
    assert person.run("logout", "short", environ=environ).stderr == "error: the profile 'short' has no token\n"


def test_a_key_comes_from_standard_input(person: LoginHarness) -> None:
    key = person.run("serviceaccount", "add-key", "ci").stdout.strip()
    done = person.run("login", "ci", "--token-stdin", text=f"{key}\n", environ={"PLATFORM_ENDPOINT": person.address})
    assert (done.returncode, done.stdout) == (0, "logged in; the profile ci is stored\n"), done.stderr
    assert person.whoami("ci") == "serviceaccount/ci"
    assert person.run("login", "ci", "--token-stdin", text="\n").returncode == 2


def test_a_login_stores_only_what_the_server_accepts(person: LoginHarness) -> None:
    """Neither a wrong key nor another org than the server has; a profile of that name stays as it was."""
    key, before = new_key(person), person.stored()
    for words, text, message in (
        ("login typo --token-stdin", f"{key}x", "does not accept the token, so nothing is stored"),
        ("login web --token-stdin --org acme", "rk_0123456789ab.wrong", "does not accept the token"),
        ("login typo --token-stdin --org other", key, "the server has the org acme, and not other"),
        ("login typo --bootstrap", "wrong", "the login is refused: "),
    ):
        done = person.run(*words.split(), text=text)
        assert (done.returncode, done.stdout, message in done.stderr) == (1, "", True), done
        assert text not in done.stderr
        assert person.stored() == before


@pytest.mark.parametrize("more", [(), ("--device",)])
def test_a_server_without_logins_of_people_names_the_other_ways(tmp_path: Path, more: tuple[str, ...]) -> None:
    address = f"127.0.0.1:{free_ports(1)[0]}"
    with harness(tmp_path, FILES, api={"address": address}) as platform:
        environ = {**os.environ, **platform.environ, "PLATFORM_ENDPOINT": f"http://{address}", "BROWSER": "false"}
        words = [*COMMAND, "login", *more]
        ended = subprocess.run(words, env=environ, capture_output=True, text=True, timeout=60, check=False)
        assert ended.returncode == 1, ended
        assert "people cannot log in here" in ended.stderr
        assert "platform login --bootstrap --token-stdin < STATE/bootstrap-token" in ended.stderr
        assert "Log in with the browser" not in ended.stderr


def test_the_daemon_of_the_settings_is_found_and_its_org(tmp_path: Path) -> None:
    with harness(tmp_path, FILES) as platform:
        environ = {name: text for name, text in {**os.environ, **platform.environ}.items() if "PLATFORM" not in name}
        environ["RECONCILER_SETTINGS"] = str(platform.sandbox.settings_file)
        for words in (("whoami",), ("gvc", "get", "-o", "name")):
            ended = subprocess.run(
                [*COMMAND, *words], env=environ, capture_output=True, text=True, timeout=60, check=False
            )
            assert (ended.returncode, ended.stderr) == (0, ""), ended
        assert ended.stdout.strip(), "the org of the daemon needs no option"
        for broken in ("state: [", "", "state: 3", "- state"):
            (tmp_path / "broken.yaml").write_text(broken)
            environ["RECONCILER_SETTINGS"] = str(tmp_path / "broken.yaml")
            ended = subprocess.run(
                [*COMMAND, "whoami"], env=environ, capture_output=True, text=True, timeout=60, check=False
            )
            assert "name the address of the API" in ended.stderr, ended


def test_a_word_that_names_no_profile_is_refused_before_anything_is_asked_for(person: LoginHarness) -> None:
    before = person.stored()
    for word in ("nonsense", "reconciler.example.com/x", "https//example.com"):
        done = person.run("login", word, "--token-stdin", text="rk_1", environ={"PLATFORM_ENDPOINT": ""})
        assert (done.returncode, done.stdout, word in done.stderr) == (2, "", True), done
    assert person.stored() == before


def test_a_login_takes_an_address_in_place_of_a_profile(person: LoginHarness) -> None:
    done = person.run(
        "login",
        person.address,
        "--token-stdin",
        "--profile",
        "by-address",
        text=new_key(person),
        environ={"PLATFORM_ENDPOINT": ""},
    )
    assert done.returncode == 0, done.stderr
    assert person.profile("by-address")["endpoint"] == person.address


def new_key(person: LoginHarness) -> str:
    """A new key of a service account."""
    return person.run("serviceaccount", "add-key", "ci").stdout.strip()


def test_commands_that_change_profiles_at_once_lose_none(person: LoginHarness) -> None:
    with ThreadPoolExecutor(6) as pool:
        commands = [person.begin("profile", "update", f"many-{number}", "--gvc", "shop") for number in range(6)]
        assert [*pool.map(lambda each: each.wait(60), commands)] == [0] * 6
    stored = json.loads(person.file.read_text())["profiles"]
    assert {f"many-{number}" for number in range(6)} <= stored.keys()


@pytest.fixture
def keyring(person: LoginHarness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TokenKeyring]:
    """A keyring of the desktop on which the commands of ``person`` run."""
    with unlocked_keyring(tmp_path / "desktop") as variables:
        monkeypatch.setattr(person, "environ", {**person.environ, **variables})
        yield TokenKeyring(person.file, {**os.environ, **variables})


IN_KEYRING = Profile(keyring=True)


def test_tokens_are_in_the_keyring_of_a_desktop_and_renewed_there(person: LoginHarness, keyring: TokenKeyring) -> None:
    _log_in(person, "desk")
    before = keyring.with_tokens("desk", IN_KEYRING)
    assert (before.token[:3], before.refresh_token[:3]) == ("rs_", "rr_")
    assert person.whoami("desk") == "user/ann@example.com"
    assert "[stored]" in person.run("profile", "get", "desk").stdout
    person.change("desk", expires=time.time() + 5)
    commands = [person.begin("whoami", "--profile", "desk") for _ in range(3)]
    assert [command.communicate(timeout=60)[1] for command in commands] == ["", "", ""]
    after = keyring.with_tokens("desk", IN_KEYRING)
    assert not {after.token, after.refresh_token} & {before.token, before.refresh_token, ""}
    assert not [each for each in (*tokens_of(after), *tokens_of(before)) if each in person.file.read_text()]
    assert person.run("logout", "desk", environ={"PLATFORM_ENDPOINT": person.address}).returncode == 0
    assert keyring.with_tokens("desk", IN_KEYRING).token == ""
    assert not person.profile("desk")["keyring"]
    ended = person.run("whoami", "--token", after.token, environ={"PLATFORM_ENDPOINT": person.address})
    assert ended.returncode == 1


def tokens_of(profile: Profile) -> tuple[str, str]:
    return profile.token, profile.refresh_token


@pytest.mark.parametrize(
    "words", ["profile delete kept", "profile update kept --token rk_new", "login kept --token-stdin --no-keyring"]
)
def test_a_profile_that_leaves_the_keyring_leaves_nothing_there(
    person: LoginHarness, keyring: TokenKeyring, words: str
) -> None:
    key = new_key(person)
    person.run("login", "kept", "--token-stdin", text=key)
    assert keyring.with_tokens("kept", IN_KEYRING).token == key
    assert person.run(*words.split(), text=new_key(person)).returncode == 0
    assert keyring.with_tokens("kept", IN_KEYRING).token == ""
    assert key not in person.file.read_text()


def test_without_a_keyring_tokens_are_in_the_file(
    person: LoginHarness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = new_key(person)
    assert person.run("login", "bare", "--token-stdin", "--keyring", text=key).stderr.startswith(
        "error: there is no keyring: it needs secret-tool"
    )
    with unlocked_keyring(tmp_path / "desktop") as variables, monkeypatch.context() as patch:
        patch.setattr(person, "environ", {**person.environ, **variables})
        assert person.run("login", "gone", "--token-stdin", text=key).returncode == 0
    with session_bus(tmp_path / "bus") as variables:
        monkeypatch.setattr(person, "environ", {**person.environ, **variables})
        stored = person.run("login", "bare", "--token-stdin", text=key)
        assert (stored.returncode, person.profile("bare")["token"]) == (0, key)
        assert "the keyring cannot be asked (" in stored.stderr
        assert f"The tokens are in {person.file} now" in stored.stderr
        assert person.run("login", "bare", "--token-stdin", "--keyring", text=key).returncode == 1
        lost = json.loads(person.whoami("gone"))["error"]["message"]
        assert lost.startswith("the keyring cannot be asked (")
        assert "platform login gone --no-keyring" in lost
        over = person.run("logout", "gone", environ={"PLATFORM_ENDPOINT": person.address})
        assert (over.returncode, over.stdout) == (0, "logged out of the profile gone\n")
        assert "the tokens of the profile gone stay in the keyring" in over.stderr


def _log_in(person: LoginHarness, name: str) -> None:
    """Store a login of Ann's as the profile ``name``."""
    command = person.begin("login", name, browser="true %s")
    assert command.stderr is not None
    url = command.stderr.readline().partition(": ")[2].strip()
    threading.Thread(target=browse, args=(url, "ann")).start()
    _, err = command.communicate(timeout=60)
    assert command.returncode == 0, err


def _device_page(url: str, name: str) -> tuple[str, str]:
    """The page on which ``name`` allows a machine, and the proof of identity in it."""
    page = browse(url, name).text
    return page, page.partition('name="identity" value="')[2].partition('"')[0]
