"""A registry in the event loop of a test: it has manifests, counts requests, and fails as it is asked to."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import ssl
from collections.abc import AsyncIterator, Callable
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

import httpx2
import msgspec

OCI_INDEX = "application/vnd.oci.image.index.v1+json"
OCI_MANIFEST = "application/vnd.oci.image.manifest.v1+json"


class RegistryRequest(msgspec.Struct, frozen=True):
    """A request; header names are in lower case."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    form: dict[str, str]

    @property
    def login(self) -> str:
        """USER:PASSWORD of a Basic login, or the token of a Bearer one."""
        scheme, _, rest = self.headers.get("authorization", "").partition(" ")
        return base64.b64decode(rest).decode() if scheme == "Basic" else rest


class Reply(msgspec.Struct, frozen=True):
    """An answer. With ``cut`` the connection ends before it; ``pause`` is waited for before it."""

    status: int = 200
    headers: dict[str, str] = {}
    body: bytes = b""
    cut: bool = False
    pause: asyncio.Event | None = None


def refused(status: int, code: str, message: str, **headers: str) -> Reply:
    """An error in the form of registries."""
    body = json.dumps({"errors": [{"code": code, "message": message, "detail": None}]}).encode()
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Reply(status, {"Content-Type": "application/json"} | named, body)


def digest_of(content: bytes) -> str:
    """The digest of ``content``."""
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def manifest(mark: str = "") -> bytes:
    """A manifest of one image."""
    config = {"mediaType": "application/vnd.oci.image.config.v1+json", "digest": digest_of(mark.encode()), "size": 1}
    return json.dumps({"schemaVersion": 2, "mediaType": OCI_MANIFEST, "config": config, "layers": []}).encode()


def index(*platforms: str) -> bytes:
    """An index with a manifest for each of ``platforms``: ``linux/amd64``."""
    entries: list[dict[str, Any]] = []
    for name in platforms:
        system, _, processor = name.partition("/")
        platform = {"os": system, "architecture": processor}
        entries.append({"mediaType": OCI_MANIFEST, "digest": digest_of(name.encode()), "size": 1, "platform": platform})
    return json.dumps({"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": entries}).encode()


class FakeRegistry:
    """Serves manifests at ``host``. ``answer`` may answer any request in its place; ``asked`` has all requests.

    With ``login`` it wants that Basic login, or with ``tokens`` a token for it of its own service at ``/token``.
    """

    def __init__(self, login: str = "", tokens: bool = False, tls: ssl.SSLContext | None = None) -> None:
        self.login = login
        self.tokens = tokens
        self.asked: list[RegistryRequest] = []
        self.answer: Callable[[RegistryRequest], Reply | None] = lambda asked: None
        self.host = ""
        self.issued = 0
        self.token_life = 300
        self._tls = tls
        self._manifests: dict[str, dict[str, bytes]] = {}
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._tls)
        self.host = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._open:
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    def push(self, repository: str, tag: str, content: bytes) -> str:
        """Let ``tag`` mean ``content``; the digest of it."""
        digest = digest_of(content)
        self._manifests.setdefault(repository, {}).update({tag: content, digest: content})
        return digest

    def delete(self, repository: str, name: str) -> None:
        """Forget a tag or a digest."""
        del self._manifests[repository][name]

    def has(self, repository: str, digest: str) -> bool:
        """Whether a manifest is here."""
        return digest in self._manifests.get(repository, {})

    def count(self, *methods: str) -> int:
        """The number of requests for manifests, of ``methods`` or of all."""
        return sum("/manifests/" in each.path and (not methods or each.method in methods) for each in self.asked)

    def transport(self, host: str) -> httpx2.AsyncBaseTransport:
        """Serve as ``host`` without any socket: nothing takes time but what a reply waits for."""
        self.host = host

        async def handle(request: httpx2.Request) -> httpx2.Response:
            names = {name.lower(): value for name, value in request.headers.items()}
            parts = urlsplit(str(request.url))
            asked = RegistryRequest(
                request.method, parts.path, _flat(parts.query), names, _flat(request.content.decode())
            )
            reply = await self._reply(asked)
            if parts.netloc != self.host or reply.cut:
                raise httpx2.ConnectError("All connection attempts failed", request=request)
            return httpx2.Response(reply.status, headers=reply.headers, stream=_Body(reply, request.method))

        return httpx2.MockTransport(handle)

    async def _reply(self, asked: RegistryRequest) -> Reply:
        self.asked.append(asked)
        reply = self.answer(asked) or self._own(asked)
        if reply.pause is not None:
            await reply.pause.wait()
        return reply

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        try:
            while await self._one(reader, writer):
                pass
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self._open.discard(task)
            writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        first = await reader.readexactly(1)
        if not first.isalpha():
            writer.write(b"HTTP/1.1 400 no TLS here\r\n\r\n")
            return False
        lines = (first + await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        method, target, _ = lines[0].split(" ")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
        sent = (await reader.readexactly(int(headers.get("content-length", 0)))).decode()
        parts = urlsplit(target)
        reply = await self._reply(RegistryRequest(method, parts.path, _flat(parts.query), headers, _flat(sent)))
        if reply.cut:
            return False
        names = {"Content-Length": str(len(reply.body))} | reply.headers
        head = "".join(f"{name}: {value}\r\n" for name, value in names.items())
        writer.write(f"HTTP/1.1 {reply.status} x\r\n{head}\r\n".encode() + (b"" if method == "HEAD" else reply.body))
        await writer.drain()
        return True

    def _own(self, asked: RegistryRequest) -> Reply:
        if asked.path == "/token":
            return self._token(asked)
        if self.login and asked.login != (f"token-{self.issued}" if self.tokens else self.login):
            realm = f'Bearer realm="http://{self.host}/token",service="test"' if self.tokens else 'Basic realm="test"'
            return refused(401, "UNAUTHORIZED", "authentication required", WWW_Authenticate=realm)
        if asked.path == "/v2/":
            return Reply(body=b"{}")
        repository, _, name = asked.path.removeprefix("/v2/").partition("/manifests/")
        content = self._manifests.get(repository, {}).get(name)
        if content is None:
            return refused(404, "MANIFEST_UNKNOWN", "manifest unknown")
        kind = json.loads(content)["mediaType"]
        return Reply(200, {"Content-Type": kind, "Docker-Content-Digest": digest_of(content)}, content)

    def _token(self, asked: RegistryRequest) -> Reply:
        if asked.login != self.login and asked.form.get("refresh_token") != self.login:
            return Reply(401, {}, b'{"details": "incorrect username or password"}')
        self.issued += 1
        return Reply(body=json.dumps({"token": f"token-{self.issued}", "expires_in": self.token_life}).encode())


class _Body(httpx2.AsyncByteStream):
    """The body of a reply; HEAD has none."""

    def __init__(self, reply: Reply, method: str) -> None:
        self._content = b"" if method == "HEAD" else reply.body

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield self._content


def _flat(text: str) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(text).items()}
