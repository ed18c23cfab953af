"""Programs in containers of a cluster, over a WebSocket that speaks the protocol of the API server."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml
from websockets.asyncio.server import ServerConnection, serve
from websockets.datastructures import Headers
from websockets.http11 import Request, Response

from reconciler.engines.kubernetes.reading import session as session_module
from reconciler.engines.kubernetes.reading.location import KubernetesReader
from reconciler.engines.reading import ExecTarget
from reconciler.errors import EngineError
from reconciler.model.key import Key
from reconciler.reasons import Reason
from reconciler.terminal.session import Channel, ExecSession, TerminalSize
from tests.engines.kubernetes.reading_kit import WEB, make_settings, namespace_of, pod_of, running
from tests.support.certificates import authority, issue, issue_for_user

NEWEST, OLDER = "v5.channel.k8s.io", "v4.channel.k8s.io"
TARGET = ExecTarget("here", WEB, "web-1", "main")
Program = Callable[["Exec"], Awaitable[dict[str, Any] | None]]
"""What runs: it returns its status, or None to go without one."""


def ended(code: int) -> dict[str, Any]:
    """The status of a program that ended."""
    if not code:
        return {"status": "Success"}
    causes = [{"reason": "ExitCode", "message": str(code)}]
    return {"status": "Failure", "reason": "NonZeroExitCode", "message": f"code {code}", "details": {"causes": causes}}


class Exec:
    """The side of the API server of one session."""

    def __init__(self, link: ServerConnection) -> None:
        assert link.request is not None
        self._link = link
        self.path = urlsplit(link.request.path).path
        self.query = parse_qs(urlsplit(link.request.path).query)
        self.sizes: list[dict[str, int]] = []

    async def print(self, content: bytes, channel: int = 1) -> None:
        await self._link.send(bytes([channel]) + content)

    async def read(self) -> bytes | None:
        """The next input; None at its end."""
        async for message in self._link:
            assert isinstance(message, bytes)
            if message[0] == 0:
                return message[1:]
            if message[0] == 4:
                self.sizes.append(json.loads(message[1:]))
            if message == b"\xff\x00":
                return None
        return None


async def echo(session: Exec) -> dict[str, Any]:
    """Print the input, to its end."""
    while (content := await session.read()) is not None:
        await session.print(content)
    return ended(0)


class ExecServer:
    """An API server with one pod, which runs ``program``."""

    def __init__(self, program: Program = echo) -> None:
        self.program = program
        self.objects: dict[str, Any] = {
            "/api/v1/namespaces/shop": namespace_of("shop"),
            "/api/v1/namespaces/shop/pods": {"items": [pod_of(WEB, "web-1") | {"status": running()}]},
        }
        self.refuse: tuple[int, str] | None = None
        self.headers: list[Headers] = []
        self.sessions: list[Exec] = []
        self.url = ""

    async def answer(self, _link: ServerConnection, request: Request) -> Response | None:
        """An object, or None for a session."""
        self.headers.append(request.headers)
        path = urlsplit(request.path).path
        if path.endswith("/exec"):
            return self._respond(self.refuse[0], {"message": self.refuse[1]}) if self.refuse else None
        return self._respond(200, self.objects[path])

    def _respond(self, status: int, body: dict[str, Any]) -> Response:
        content = json.dumps(body).encode()
        headers = Headers(
            {"Content-Type": "application/json", "Content-Length": str(len(content)), "Connection": "close"}
        )
        if status == HTTPStatus.FOUND:
            headers["Location"] = "http://127.0.0.1:1/elsewhere"
        return Response(status, HTTPStatus(status).phrase, headers, content)

    async def run(self, link: ServerConnection) -> None:
        """A session."""
        session = Exec(link)
        self.sessions.append(session)
        await session.print(b"")
        status = await self.program(session)
        if status is not None:
            await session.print(json.dumps(status).encode(), 3)


@asynccontextmanager
async def listening(
    server: ExecServer, protocols: Sequence[str] = (NEWEST, OLDER), context: ssl.SSLContext | None = None
) -> AsyncIterator[None]:
    async with serve(
        server.run,
        "127.0.0.1",
        0,
        subprotocols=protocols,  # type: ignore[arg-type]
        process_request=server.answer,
        ssl=context,
        max_size=None,
    ) as listener:
        port = next(iter(listener.sockets)).getsockname()[1]
        server.url = f"{'https' if context else 'http'}://127.0.0.1:{port}"
        yield


def write_kubeconfig(path: Path, server: str, user: dict[str, str], **cluster: str) -> Path:
    """A kubeconfig."""
    file = path / "kubeconfig"
    config = {
        "current-context": "one",
        "clusters": [{"name": "one", "cluster": {"server": server, **cluster}}],
        "users": [{"name": "one", "user": user}],
        "contexts": [{"name": "one", "context": {"cluster": "one", "user": "one"}}],
    }
    file.write_text(yaml.safe_dump(config))
    return file


def reader_of(path: Path, server: ExecServer, **user: str) -> KubernetesReader:
    file = write_kubeconfig(path, server.url, user or {"token": "secret"})
    return KubernetesReader(make_settings(path, file), "here")


@asynccontextmanager
async def opened(
    path: Path, server: ExecServer, *argv: str, terminal: TerminalSize | None = None, **options: Any
) -> AsyncIterator[ExecSession]:
    """A session in the pod."""
    async with listening(server, **options):
        session = await reader_of(path, server).open_session(TARGET, argv or ("sh",), terminal)
        try:
            yield session
        finally:
            await session.close()


async def read_all(session: ExecSession) -> bytes:
    content = b""
    while (output := await session.read()) is not None:
        content += output.content
    return content


async def test_bytes_pass_in_both_directions(tmp_path: Path) -> None:
    content = bytes(range(256)) * 4096
    async with opened(tmp_path, ExecServer(), "cat", "-") as session:

        async def feed() -> None:
            await session.write(content)
            await session.close_stdin()

        feeding = asyncio.create_task(feed())
        assert await read_all(session) == content
        await feeding
        assert await session.wait() == 0


async def test_a_program_is_asked_for_with_its_words_and_its_container(tmp_path: Path) -> None:
    server = ExecServer()
    async with opened(tmp_path, server, "sh", "-c", "echo & exit") as session:
        await session.close_stdin()
        assert await session.wait() == 0
    [asked] = server.sessions
    assert asked.path == "/api/v1/namespaces/shop/pods/web-1/exec"
    assert asked.query == {
        "command": ["sh", "-c", "echo & exit"],
        "container": ["main"],
        "stdin": ["true"],
        "stdout": ["true"],
        "stderr": ["true"],
        "tty": ["false"],
    }
    assert server.headers[-1]["Authorization"] == "Bearer secret"


async def test_both_outputs_are_apart(tmp_path: Path) -> None:
    async def program(session: Exec) -> dict[str, Any]:
        await session.print(b"out")
        await session.print(b"err", 2)
        return ended(3)

    async with opened(tmp_path, ExecServer(program)) as session:
        assert await session.read() == (Channel.STDOUT, b"out")
        assert await session.read() == (Channel.STDERR, b"err")
        assert await session.read() is None
        assert await session.read() is None
        assert await session.wait() == 3


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ('exec: "nope": executable file not found in $PATH: unknown', 127),
        ("exec /opt/x: no such file or directory", 127),
        ('exec: "/etc": permission denied: unknown', 126),
    ],
)
async def test_a_program_that_cannot_start_has_the_code_of_a_shell(tmp_path: Path, message: str, code: int) -> None:
    async def program(_session: Exec) -> dict[str, Any]:
        return {"status": "Failure", "reason": "InternalError", "message": f"OCI runtime exec failed: {message}"}

    async with opened(tmp_path, ExecServer(program)) as session:
        assert await session.wait() == code


async def test_a_failure_of_the_cluster_has_its_words(tmp_path: Path) -> None:
    async def program(_session: Exec) -> dict[str, Any]:
        return {"status": "Failure", "message": "error dialing\x1b[31m backend: EOF"}

    async with opened(tmp_path, ExecServer(program)) as session:
        with pytest.raises(EngineError, match="container main of web-1: error dialing") as raised:
            await session.wait()
    assert raised.value.reason == Reason.EXEC_FAILED
    assert "\x1b" not in str(raised.value)


async def test_a_connection_that_is_cut_has_no_exit_code(tmp_path: Path) -> None:
    async def program(_session: Exec) -> None:
        return None

    async with opened(tmp_path, ExecServer(program)) as session:
        with pytest.raises(EngineError, match="so the exit code of the program is unknown"):
            await session.wait()
        with pytest.raises(BrokenPipeError):
            await session.write(b"x")
        await session.close_stdin()
        await session.resize(TerminalSize())


async def test_a_program_that_ends_with_its_container_has_no_exit_code(tmp_path: Path) -> None:
    server = ExecServer()

    async def program(_session: Exec) -> dict[str, Any]:
        server.objects["/api/v1/namespaces/shop/pods"]["items"][0]["status"] = running(restarts=1)
        return ended(137)

    server.program = program
    async with opened(tmp_path, server) as session:
        with pytest.raises(EngineError, match="container main of web-1 has ended, and the program with it") as raised:
            await session.wait()
    assert raised.value.reason == Reason.NOT_RUNNING


async def test_a_program_that_is_killed_alone_has_its_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_module, "END_SECONDS", 0.0)

    async def program(_session: Exec) -> dict[str, Any]:
        return ended(137)

    async with opened(tmp_path, ExecServer(program)) as session:
        assert await session.wait() == 137


async def test_a_terminal_has_its_size_and_learns_of_another(tmp_path: Path) -> None:
    server = ExecServer()

    async def program(session: Exec) -> dict[str, Any]:
        assert await session.read() == b"\x04"
        return ended(0)

    server.program = program
    async with opened(tmp_path, server, terminal=TerminalSize(30, 100)) as session:
        await session.resize(TerminalSize(40, 120))
        await session.close_stdin()
        assert await session.wait() == 0
    [asked] = server.sessions
    assert asked.sizes == [{"Width": 100, "Height": 30}, {"Width": 120, "Height": 40}]
    assert (asked.query["tty"], asked.query["stderr"]) == (["true"], ["false"])


async def test_an_older_server_runs_programs_too(tmp_path: Path) -> None:
    """It has no message for the end of input."""

    async def program(session: Exec) -> dict[str, Any]:
        assert await session.read() == b"line\n"
        return ended(7)

    async with opened(tmp_path, ExecServer(program), protocols=(OLDER,)) as session:
        await session.close_stdin()
        await session.write(b"line\n")
        assert await session.wait() == 7


@pytest.mark.parametrize(
    "target",
    [
        TARGET._replace(replica="web-2"),
        TARGET._replace(replica="../../kube-system/pods/etcd"),
        TARGET._replace(container="istio-proxy"),
        TARGET._replace(key=Key.parse("workload/shop/api")),
    ],
)
async def test_only_a_running_container_of_the_workload_is_entered(tmp_path: Path, target: ExecTarget) -> None:
    server = ExecServer()
    async with listening(server):
        with pytest.raises(EngineError) as raised:
            await reader_of(tmp_path, server).open_session(target, ["sh"], None)
    assert raised.value.reason == Reason.NOT_RUNNING
    assert server.sessions == []


@pytest.mark.parametrize("labels", [{"reconciler.dev/instance": "other"}, {"reconciler.dev/location": "there"}, None])
async def test_a_namespace_of_others_is_not_entered(tmp_path: Path, labels: dict[str, str] | None) -> None:
    server = ExecServer()
    metadata = server.objects["/api/v1/namespaces/shop"]["metadata"]
    metadata["labels"] = metadata["labels"] | labels if labels is not None else {}
    async with listening(server):
        with pytest.raises(EngineError, match="container main of web-1 does not run"):
            await reader_of(tmp_path, server).open_session(TARGET, ["sh"], None)
    assert server.sessions == []


@pytest.mark.parametrize(
    ("status", "reason"),
    [(403, Reason.CLUSTER_FORBIDDEN), (401, Reason.CREDENTIALS_REFUSED), (302, Reason.CLUSTER_FAILED)],
)
async def test_a_refusal_has_the_words_of_the_server(tmp_path: Path, status: int, reason: Reason) -> None:
    """A redirection is one: the credentials are for this server."""
    server = ExecServer()
    server.refuse = (status, "pods/exec is not for you")
    async with listening(server):
        with pytest.raises(EngineError, match="run a program in container main of web-1: pods/exec is not") as raised:
            await reader_of(tmp_path, server).open_session(TARGET, ["sh"], None)
    assert raised.value.reason == reason
    assert "secret" not in str(raised.value)


async def test_a_token_file_is_read_again_when_its_token_is_refused(tmp_path: Path) -> None:
    server, token = ExecServer(), tmp_path / "token"
    token.write_text("old")
    answer = server.answer

    async def check(link: ServerConnection, request: Request) -> Response | None:
        if request.path.partition("?")[0].endswith("/exec") and request.headers["Authorization"] != "Bearer new":
            token.write_text("new")
            return server._respond(401, {"message": "Unauthorized"})
        return await answer(link, request)

    server.answer = check  # type: ignore[method-assign]
    async with listening(server):
        session = await reader_of(tmp_path, server, tokenFile=str(token)).open_session(TARGET, ["sh"], None)
        await session.close_stdin()
        assert await session.wait() == 0
        await session.close()


async def test_a_token_file_that_is_gone_is_an_error_for_people(tmp_path: Path) -> None:
    server = ExecServer()
    async with listening(server):
        reader = reader_of(tmp_path, server, tokenFile=str(tmp_path / "nowhere"))
        with pytest.raises(EngineError, match=r"the credentials for .* cannot be used") as raised:
            await reader.open_session(TARGET, ["sh"], None)
    assert raised.value.reason == Reason.CREDENTIALS_REFUSED


async def test_a_client_certificate_logs_in(tmp_path: Path) -> None:
    """Without it, the server does not talk."""
    host, client = issue("127.0.0.1"), issue_for_user("reconciler")
    files = {"ca": authority().chain_pem, "host": host.pem, "cert": client.chain_pem, "key": client.key_pem}
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "host")
    context.load_verify_locations(tmp_path / "ca")
    context.verify_mode = ssl.CERT_REQUIRED
    server = ExecServer()
    async with listening(server, context=context):
        trust = {"certificate-authority": str(tmp_path / "ca")}
        user = {"client-certificate": str(tmp_path / "cert"), "client-key": str(tmp_path / "key")}
        file = write_kubeconfig(tmp_path, server.url, user, **trust)
        session = await KubernetesReader(make_settings(tmp_path, file), "here").open_session(TARGET, ["sh"], None)
        await session.close_stdin()
        assert await session.wait() == 0
        await session.close()
        assert "Authorization" not in server.headers[-1]


async def test_a_server_that_is_gone_is_an_error_for_people(tmp_path: Path) -> None:
    server = ExecServer()
    async with listening(server):
        reader = reader_of(tmp_path, server)
    with pytest.raises(EngineError, match="does not answer") as raised:
        await reader.open_session(TARGET, ["sh"], None)
    assert raised.value.reason == Reason.CLUSTER_UNREACHABLE
