"""The credential helper as its clients run it: a process with an action, its input on stdin, its answer on stdout."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader, RawIOBase, TextIOWrapper
from pathlib import Path
from typing import NamedTuple

import pytest

from reconciler.platform_cli.docker_credentials import run_action
from tests.support.docker_registry import PASSWORD, USER, DockerRegistry, docker_registry, image
from tests.support.programs import tool
from tests.support.sandbox import eventually

HELPER = Path(sys.executable).with_name("docker-credential-platform")
SERVER = "registry.example.com:5000"
LOGIN = {"ServerURL": SERVER, "Username": "ann", "Secret": "p\u00e4ss\nword"}
NOT_FOUND = "credentials not found in native keychain\n"


class HelperResult(NamedTuple):
    code: int
    stdout: str
    stderr: str


class Home:
    """A user's directory, and the file of the helper in it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.file = path / "platform" / "registries.json"

    def run(self, *words: str, text: str | bytes = "") -> HelperResult:
        raw = text.encode() if isinstance(text, str) else text
        environ = {**os.environ, "XDG_CONFIG_HOME": str(self.path)}
        done = subprocess.run([HELPER, *words], input=raw, env=environ, capture_output=True, timeout=60, check=False)
        return HelperResult(done.returncode, done.stdout.decode(), done.stderr.decode())

    def store(self, **members: str) -> HelperResult:
        return self.run("store", text=json.dumps({**LOGIN, **members}))


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def test_what_is_stored_is_got_listed_and_erased(home: Home) -> None:
    assert home.store() == HelperResult(0, "", "")
    assert home.store(ServerURL="https://other.example.com/v1/", Username="bob") == HelperResult(0, "", "")
    got = home.run("get", text=f"{SERVER}\n")
    assert (got.code, json.loads(got.stdout), got.stderr) == (0, LOGIN, "")
    listed = home.run("list")
    assert (listed.code, json.loads(listed.stdout)) == (0, {SERVER: "ann", "https://other.example.com/v1/": "bob"})
    assert home.run("erase", text=SERVER) == HelperResult(0, "", "")
    assert home.run("erase", text=SERVER) == HelperResult(0, "", ""), "erasing it again is no error"
    assert home.run("get", text=SERVER) == HelperResult(1, NOT_FOUND, "")
    assert json.loads(home.run("list").stdout) == {"https://other.example.com/v1/": "bob"}


def test_a_later_login_replaces_the_earlier_one(home: Home) -> None:
    home.store()
    home.store(Secret="second")
    assert json.loads(home.run("get", text=SERVER).stdout)["Secret"] == "second"


def test_logins_are_in_a_file_of_this_user_alone(home: Home) -> None:
    home.store()
    assert home.file.stat().st_mode & 0o777 == 0o600
    assert [each.name for each in home.file.parent.iterdir()] == [home.file.name]


@pytest.mark.parametrize(
    ("words", "text", "printed"),
    [
        (("get",), "", "no credentials server URL\n"),
        (("get",), "\n", "no credentials server URL\n"),
        (("get",), "unknown.example.com", NOT_FOUND),
        (("get",), b"\xff", "the address of the registry on stdin is not text in UTF-8\n"),
        (("erase",), "", "no credentials server URL\n"),
        (("store",), json.dumps({"Username": "ann", "Secret": "s"}), "no credentials server URL\n"),
        (("store",), json.dumps({"ServerURL": SERVER, "Secret": "s"}), "no credentials username\n"),
        (("store",), "hunter2", 'stdin must be an object: {"ServerURL": …, "Username": …, "Secret": …}\n'),
        (("store",), '{"Secret": 2}', 'stdin must be an object: {"ServerURL": …, "Username": …, "Secret": …}\n'),
        (("store",), b"x" * (1 << 20) + b"y", "stdin has more than 1048576 bytes\n"),
        (("guess",), "", "docker-credential-platform: unknown action: guess\n"),
        ((), "", "Usage: docker-credential-platform <store|get|erase|list|version>\n"),
    ],
)
def test_a_refusal_is_a_line_on_stdout_and_the_code_1(
    home: Home, words: tuple[str, ...], text: str | bytes, printed: str
) -> None:
    assert home.run(*words, text=text) == HelperResult(1, printed, "")
    assert not home.file.exists()


class InterruptedInput(RawIOBase):
    """Standard input at which a person presses Ctrl-C."""

    def readable(self) -> bool:
        return True

    def readinto(self, _: object) -> int:
        raise KeyboardInterrupt


def test_an_interrupt_at_the_input_writes_nothing(
    home: Home, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for action in ("store", "get", "erase"):
        monkeypatch.setattr(sys, "stdin", TextIOWrapper(BufferedReader(InterruptedInput())))
        assert run_action([action], {"XDG_CONFIG_HOME": str(home.path)}) == 130
    assert capsys.readouterr() == ("", "")
    assert not home.file.exists()


@pytest.mark.parametrize("content", ["", "[]", '{"a": 1}', '{"a": {"Secret": 2}}'])
def test_a_damaged_file_is_named_and_stays_as_it_is(home: Home, content: str) -> None:
    home.file.parent.mkdir()
    home.file.write_text(content)
    for words, text in ((("get",), SERVER), (("list",), ""), (("store",), json.dumps(LOGIN))):
        text_ = f"{home.file} is damaged; remove the file, and log in to the registries again\n"
        assert home.run(*words, text=text) == HelperResult(1, text_, "")
    assert home.file.read_text() == content


@pytest.mark.slow
def test_processes_that_store_at_once_lose_no_login(home: Home) -> None:
    environ = {**os.environ, "XDG_CONFIG_HOME": str(home.path)}
    running = []
    for number in range(8):
        process = subprocess.Popen([HELPER, "store"], stdin=subprocess.PIPE, env=environ)
        assert process.stdin is not None
        process.stdin.write(json.dumps({**LOGIN, "ServerURL": f"host-{number}"}).encode())
        process.stdin.close()
        running.append(process)
    assert [each.wait(60) for each in running] == [0] * 8
    assert sorted(json.loads(home.run("list").stdout)) == [f"host-{number}" for number in range(8)]


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DockerRegistry]:
    with docker_registry(tmp_path_factory.mktemp("registry"), login=True) as running:
        running.push("team/app", "1", image("one"))
        yield running


@pytest.fixture
def short_path() -> Iterator[str]:
    """A directory with a short name: Podman refuses others for its state."""
    with tempfile.TemporaryDirectory(dir="/tmp") as path:
        yield path


@pytest.mark.slow
def test_podman_logs_in_pulls_and_pushes_with_the_helper(home: Home, registry: DockerRegistry, short_path: str) -> None:
    """The login file of Podman only names the helper, so each pull and push gets its password from it."""
    podman = tool("podman", "podman")
    logins = home.path / "config.json"
    logins.write_text('{"experimental": "enabled"}')
    environ = {
        **os.environ,
        "XDG_CONFIG_HOME": str(home.path),
        "REGISTRY_AUTH_FILE": str(logins),
        "DOCKER_CONFIG": str(home.path),
        "PATH": f"{HELPER.parent}:{os.environ['PATH']}",
    }
    prepare = [sys.executable, "-m", "reconciler.platform_cli", "image", "docker-login", "--registry", registry.host]
    prepared = subprocess.run(prepare, env=environ, capture_output=True, text=True, check=True)
    assert prepared.stderr == f"next: docker login {registry.host}\n"
    assert json.loads(logins.read_text()) == {"experimental": "enabled", "credHelpers": {registry.host: "platform"}}
    storage = (
        "--root",
        str(home.path / "root"),
        "--runroot",
        f"{short_path}/run",
        "--tmpdir",
        f"{short_path}/tmp",
        "--storage-driver",
        "vfs",
    )

    def run(*words: str, text: str = "") -> subprocess.CompletedProcess[str]:
        command = [podman, *storage, *words]
        return subprocess.run(
            command, input=text, env=environ, capture_output=True, text=True, timeout=120, check=False
        )

    reference = f"{registry.host}/team/app"
    refused = run("pull", "--tls-verify=false", f"{reference}:1")
    assert refused.returncode != 0
    assert "authentication required" in refused.stderr
    login = run("login", "--tls-verify=false", "-u", USER, "--password-stdin", registry.host, text=PASSWORD)
    assert login.returncode == 0, login.stderr
    assert PASSWORD in home.file.read_text()
    assert PASSWORD not in logins.read_text()
    for words in (("pull", f"{reference}:1"), ("push", f"{reference}:1", f"{reference}:2")):
        done = run(words[0], "--tls-verify=false", *words[1:])
        assert done.returncode == 0, done.stderr
    logout = run("logout", registry.host)
    assert logout.returncode == 0, logout.stderr
    assert home.run("get", text=registry.host) == HelperResult(1, NOT_FOUND, "")


@contextmanager
def docker_daemon(path: Path) -> Iterator[str]:
    """Docker's daemon, without a network for containers: the address at which it listens."""
    program = tool("dockerd", "docker.io")
    if os.geteuid():
        pytest.skip("the daemon of Docker needs root")
    address = f"unix://{path}/d"
    settings = (
        "--data-root",
        f"{path}/data",
        "--exec-root",
        f"{path}/exec",
        "--pidfile",
        f"{path}/pid",
        "--host",
        address,
        "--bridge",
        "none",
        "--ip-forward=false",
        "--iptables=false",
        "--ip6tables=false",
        "--storage-driver",
        "vfs",
    )
    with (path / "log").open("wb") as log, subprocess.Popen([program, *settings], stdout=log, stderr=log) as daemon:
        try:
            asking = [tool("docker", "docker.io"), "--host", address, "version"]
            eventually(
                lambda: subprocess.run(asking, capture_output=True, check=False).returncode == 0, "Docker answers"
            )
            yield address
        finally:
            daemon.terminate()


class Docker:
    """Docker's command line for the user of ``home``, prepared for the helper."""

    def __init__(self, home: Home, registry: DockerRegistry, address: str) -> None:
        self.logins = home.path / "config.json"
        self.environ = {
            **os.environ,
            "HOME": str(home.path),
            "XDG_CONFIG_HOME": str(home.path),
            "DOCKER_CONFIG": str(home.path),
            "DOCKER_HOST": address,
            "PATH": f"{HELPER.parent}:{os.environ['PATH']}",
        }
        self._program = tool("docker", "docker.io")
        prepare = [sys.executable, "-m", "reconciler.platform_cli", "image", "docker-login", "--registry"]
        subprocess.run([*prepare, registry.host], env=self.environ, capture_output=True, check=True)

    def run(self, *words: str, text: str = "") -> subprocess.CompletedProcess[str]:
        """A command of Docker."""
        return subprocess.run(
            [self._program, *words],
            input=text,
            env=self.environ,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )


LOGIN_WORDS = ("login", "--username", USER, "--password-stdin")


def test_docker_pulls_and_pushes_with_the_helper(home: Home, registry: DockerRegistry, short_path: str) -> None:
    with docker_daemon(Path(short_path)) as address:
        docker, reference = Docker(home, registry, address), f"{registry.host}/team/app"
        assert "no basic auth credentials" in docker.run("pull", f"{reference}:1").stderr
        assert docker.run(*LOGIN_WORDS, registry.host, text=PASSWORD).returncode == 0
        for words in (
            ("pull", f"{reference}:1"),
            ("tag", f"{reference}:1", f"{reference}:3"),
            ("push", f"{reference}:3"),
        ):
            done = docker.run(*words)
            assert done.returncode == 0, done.stderr
        assert docker.run("logout", registry.host).returncode == 0
        refused = docker.run("push", f"{reference}:3")
        assert refused.returncode != 0
        assert PASSWORD not in docker.logins.read_text() + home.file.read_text()
    assert home.run("get", text=registry.host) == HelperResult(1, NOT_FOUND, "")


@pytest.mark.slow
def test_docker_logs_in_reads_and_writes_with_the_helper(home: Home, registry: DockerRegistry) -> None:
    """Without Docker's daemon: its command line itself logs in, and reads and writes manifests of a registry."""
    docker, reference = Docker(home, registry, f"unix://{home.path}/none"), f"{registry.host}/team/app"
    read = ("manifest", "inspect", "--insecure")
    assert "no basic auth credentials" in docker.run(*read, f"{reference}:1").stderr
    assert docker.run(*LOGIN_WORDS, registry.host, text="wrong").returncode == 1
    assert docker.run("logout", registry.host).returncode == 0
    logged_in = docker.run(*LOGIN_WORDS, registry.host, text=PASSWORD)
    assert (logged_in.returncode, logged_in.stdout) == (0, "Login Succeeded\n"), logged_in.stderr
    assert PASSWORD in home.file.read_text()
    assert PASSWORD not in docker.logins.read_text()
    assert json.loads(docker.run(*read, f"{reference}:1").stdout) == json.loads(image("one").manifest)
    assert docker.run("manifest", "create", "--insecure", f"{reference}:both", f"{reference}:1").returncode == 0
    pushed = docker.run("manifest", "push", "--insecure", f"{reference}:both")
    assert pushed.returncode == 0, pushed.stderr
    both = json.loads(docker.run(*read, f"{reference}:both").stdout)
    assert both["manifests"][0]["digest"] == image("one").digest
    assert docker.run("logout", registry.host).returncode == 0
    assert docker.run(*read, f"{reference}:1").returncode != 0
    assert home.run("get", text=registry.host) == HelperResult(1, NOT_FOUND, "")
