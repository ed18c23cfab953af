"""Serves the images of registries to a store on this host, so that only the daemon connects to a registry.

A store resolves names again and follows redirects by itself. This way each address that is used is one that the daemon
has checked. The store is given a name at loopback, which serves one image for as long as its pull lasts.
"""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import AsyncIterable, AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress

import msgspec

from reconciler.bugs import contain_bugs
from reconciler.engines.images.protocol import ImagePart, ImageSource, RegistryCredentials
from reconciler.engines.workload.image_reference import ImageError, ImageReference
from reconciler.tasks import cancel_and_wait

ADDRESS = "127.0.0.1"
PATIENCE = 30.0
"""Seconds in which the store must send its request, and read each part of an answer."""
MOST_SILENT = 64
"""The most connections that have sent no request; for each one more, the oldest is ended.

Any user of this host can connect, and must not take the files that the daemon may open.
"""

PROGRESS_SECONDS = 2.0
"""Seconds between two reports of progress."""

_HEAD = 16_384
_LARGE = 10_000_000
"""Bytes from which megabytes have no decimals."""
_UNBOUNDED = 1 << 63
_LONGEST_MANIFEST = 4 << 20
_TARGET = re.compile(r"/v2/(?P<name>[-a-z0-9/]+)/(?P<path>(?:manifests|blobs)/sha256:[0-9a-f]{64})")
_ASKED = frozenset({"accept", "range"})
"""Headers of the store that the registry gets."""
_ANSWERED = ("content-length", "content-range", "content-type", "docker-content-digest")
"""Headers of the registry that the store gets."""


class PullProgress(msgspec.Struct, frozen=True):
    """The bytes of layers and configuration that the store has read, and all of them; 0 where that is not known yet."""

    done: int = 0
    total: int = 0

    def __add__(self, other: PullProgress) -> PullProgress:
        return PullProgress(self.done + other.done, self.total + other.total)

    def __str__(self) -> str:
        digits = 0 if self.total >= _LARGE else 1
        return f"{min(self.done, self.total) / 1e6:.{digits}f} of {self.total / 1e6:.{digits}f} MB"


class ServedImage:
    """An image that is served under ``name``, at loopback and over http; ``error`` is the last failure to get it."""

    def __init__(self, name: str, reference: ImageReference, credentials: RegistryCredentials | None) -> None:
        self.name = name
        self.reference = reference
        self.credentials = credentials
        self.error: ImageError | None = None
        self.reported = 0.0
        """When the progress was last reported, in the time of the event loop."""
        self._read: dict[str, int] = {}
        self._sizes: dict[str, int] = {}

    @property
    def progress(self) -> PullProgress:
        """How far the pull is. Layers that the store has already are never read, and count once others end."""
        return PullProgress(sum(self._read.values()), sum(self._sizes.values()))

    def note_report(self, now: float) -> None:
        """Remember that the progress was reported ``now``."""
        self.reported = now

    def count_blob(self, path: str, size: int) -> None:
        """Count ``size`` more bytes of the blob at ``path``; a part that is read again counts once at most."""
        self._read[path] = min(self._read.get(path, 0) + size, self._sizes.get(path, _UNBOUNDED))

    def note_manifest(self, content: bytes) -> None:
        """Take the sizes of the blobs from a manifest; an index of several platforms has none."""
        with suppress(msgspec.MsgspecError):
            manifest = msgspec.json.decode(content, type=_Manifest)
            blobs = [*manifest.layers, *([manifest.config] if manifest.layers and manifest.config else [])]
            self._sizes |= {f"blobs/{blob.digest}": max(0, blob.size) for blob in blobs}

    def fail(self, error: ImageError) -> None:
        """Remember why a part was not served."""
        self.error = error


class _Blob(msgspec.Struct, frozen=True):
    digest: str
    size: int


class _Manifest(msgspec.Struct, frozen=True):
    layers: list[_Blob] = []
    config: _Blob | None = None


class _Asked(msgspec.Struct, frozen=True):
    method: str
    target: str
    headers: dict[str, str]


class PullProxy:
    """Serves images that ``source`` gets. ``owner`` distinguishes the names from those of other locations.

    A name is a secret of the pull: whoever does not know it gets nothing, and no login leaves the daemon. It listens
    only while something is served.
    """

    def __init__(
        self, source: ImageSource, owner: str, on_progress: Callable[[ImageReference], None] = lambda _: None
    ) -> None:
        """``on_progress`` is called now and then with an image that the store has read more of."""
        self._on_progress = on_progress
        self._source = source
        self._owner = owner
        self._served: dict[str, ServedImage] = {}
        self._server: asyncio.Server | None = None
        self._opening = asyncio.Lock()
        self._clients: set[asyncio.Task[None]] = set()
        self._silent: dict[asyncio.StreamWriter, None] = {}

    @asynccontextmanager
    async def serve(
        self, reference: ImageReference, credentials: RegistryCredentials | None
    ) -> AsyncIterator[ServedImage]:
        """Serve the image ``reference``, which has a digest, within the block. Raises ImageError."""
        name = f"{self._owner}/{secrets.token_hex(16)}"
        async with self._opening:
            port = await self._listen()
            served = ServedImage(f"{ADDRESS}:{port}/{name}@{reference.digest}", reference, credentials)
            self._served[name] = served
        try:
            yield served
        finally:
            del self._served[name]
            if not self._served:
                self._stop_listening()

    def find_progress(self, reference: str) -> PullProgress:
        """How far all pulls of ``reference`` are together; of nothing if there is none."""
        found = (served.progress for served in self._served.values() if str(served.reference) == reference)
        return sum(found, PullProgress())

    async def close(self) -> None:
        """Stop serving."""
        self._stop_listening()
        await cancel_and_wait(self._clients, "pulls of images")

    async def _listen(self) -> int:
        if self._server is None:
            try:
                self._server = await asyncio.start_server(self._accept, ADDRESS, 0, limit=_HEAD)
            except OSError as error:
                raise ImageError(f"images cannot be served to Podman at {ADDRESS}: {error.strerror}") from None
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    def _stop_listening(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.close()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._clients.add(task)
        if len(self._silent) >= MOST_SILENT:
            oldest = next(iter(self._silent))
            del self._silent[oldest]
            oldest.transport.abort()
        self._silent[writer] = None
        try:
            # Whatever cuts an answer short shows the store that it is not whole.
            with contain_bugs("pull of an image"), suppress(OSError, TimeoutError, ValueError, EOFError):
                asked = await _read_request(reader)
                self._silent.pop(writer, None)
                await self._answer(asked, writer)
                writer.close()
        finally:
            self._clients.discard(task)
            self._silent.pop(writer, None)
            if not writer.is_closing():
                writer.transport.abort()

    async def _answer(self, asked: _Asked, writer: asyncio.StreamWriter) -> None:
        if asked.target == "/v2/":
            await _write_content(writer, _build_head(200))
            return
        match = _TARGET.fullmatch(asked.target)
        served = self._served.get(match["name"]) if match is not None else None
        if match is None or served is None or asked.method not in ("GET", "HEAD"):
            await _write_content(writer, _build_head(404))
            return
        part = ImagePart(asked.method, served.reference, match["path"])
        headers = {name: value for name, value in asked.headers.items() if name in _ASKED}
        began = False
        try:
            async with self._source.open(part, served.credentials, headers) as stream:
                if stream.status not in (200, 206):
                    served.fail(await self._source.refusal(served.reference, stream))
                    await _write_content(writer, _build_head(stream.status))
                    return
                began = True
                await _write_content(writer, _build_head(stream.status, stream.headers))
                if asked.method == "GET":
                    await self._relay(served, match["path"], stream.chunks, writer)
        except ImageError as error:
            served.fail(error)
            if began:
                writer.transport.abort()
            else:
                await _write_content(writer, _build_head(502))

    async def _relay(
        self, served: ServedImage, path: str, chunks: AsyncIterable[bytes], writer: asyncio.StreamWriter
    ) -> None:
        """Write the part ``path`` of an image, and count what is written."""
        manifest = b""
        async for chunk in chunks:
            await _write_content(writer, chunk)
            if path.startswith("blobs/"):
                served.count_blob(path, len(chunk))
                if asyncio.get_running_loop().time() - served.reported >= PROGRESS_SECONDS:
                    self._report(served)
            elif len(manifest) < _LONGEST_MANIFEST:
                manifest += chunk
        if manifest:
            served.note_manifest(manifest)
        self._report(served)

    def _report(self, served: ServedImage) -> None:
        served.note_report(asyncio.get_running_loop().time())
        self._on_progress(served.reference)


async def _read_request(reader: asyncio.StreamReader) -> _Asked:
    """A request without its body. Raises OSError, TimeoutError, EOFError and ValueError."""
    async with asyncio.timeout(PATIENCE):
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError as error:
            raise ValueError(str(error)) from None
    first, *rest = head.decode("latin-1").splitlines()
    method, target, _ = first.split(" ")
    pairs = (line.partition(":") for line in rest if line)
    return _Asked(method, target, {name.strip().lower(): value.strip() for name, _, value in pairs})


def _build_head(status: int, headers: Mapping[str, str] | None = None) -> bytes:
    """The head of an answer after which the connection ends; without ``headers`` there is no body."""
    sent = {"content-length": "0"} if headers is None else {}
    sent |= {name: headers[name] for name in _ANSWERED if headers and name in headers}
    lines = [f"HTTP/1.1 {status} -", "docker-distribution-api-version: registry/2.0", "connection: close"]
    lines += [f"{name}: {value}" for name, value in sent.items() if value.isprintable() and value.isascii()]
    return "\r\n".join([*lines, "", ""]).encode("ascii")


async def _write_content(writer: asyncio.StreamWriter, content: bytes) -> None:
    """Write ``content`` as fast as the store reads. Raises OSError if it is gone, or reads nothing."""
    writer.write(content)
    try:
        async with asyncio.timeout(PATIENCE):
            await writer.drain()
    except TimeoutError:
        # Only a TimeoutError of the registry may be one here.
        raise ConnectionAbortedError("the store reads nothing") from None
