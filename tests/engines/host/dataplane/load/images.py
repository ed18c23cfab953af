"""Images of the program that serves, in a registry that can be slow."""

from __future__ import annotations

import asyncio
import gzip
import io
import json
import sysconfig
import tarfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.engines.host.dataplane.load import program
from tests.engines.host.runtimes.podman.serving import in_thread
from tests.support.podman import blobs_of, manifest_of, python_image
from tests.support.registry import FakeRegistry, RegistryRequest, Reply, digest_of

BASE = "localhost/reconciler-test-program:1"
"""Python, busybox and the program; the image of all workloads that get no other one."""
PROGRAM = "/srv/program.py"
REPOSITORY = "web"
_LIBRARIES = ("h2", "hpack", "hyperframe")


def base_image() -> bytes:
    """The archive of BASE."""
    packages = Path(sysconfig.get_path("purelib"))
    files = {PROGRAM.lstrip("/"): Path(program.__file__).read_bytes()}
    for path in (path for name in _LIBRARIES for path in (packages / name).rglob("*.py")):
        files[f"usr/lib/python3.11/{path.relative_to(packages)}"] = path.read_bytes()
    return python_image(BASE, files)


class ProgramImages:
    """Versions of the image, by tag. While they are slow, a pull gets no layer that differs from those of BASE."""

    def __init__(self, archive: bytes, registry: FakeRegistry) -> None:
        self.registry = registry
        self._base = manifest_of(archive)
        self._blobs = blobs_of(archive)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._slow: asyncio.Event | None = None
        self._layers: dict[str, str] = {}
        registry.answer = self._answer

    @contextmanager
    def served(self) -> Iterator[None]:
        """Serve them in a thread."""

        async def serve(ready: threading.Event, end: asyncio.Event) -> None:
            self._loop = asyncio.get_running_loop()
            async with self.registry:
                ready.set()
                await end.wait()

        with in_thread(serve):
            yield

    def name(self, tag: str) -> str:
        """The image as manifests name it."""
        return f"{self.registry.host}/{REPOSITORY}:{tag}"

    def push(self, tag: str, mark: str) -> str:
        """Let ``tag`` mean the program beside a file with ``mark``; the digest."""
        layer = _layer(mark)
        manifest = json.loads(self._base)
        config = json.loads(self._blobs[manifest["config"]["digest"]])
        config["rootfs"]["diff_ids"].append(digest_of(layer))
        packed, body = gzip.compress(layer, 1, mtime=0), json.dumps(config).encode()
        manifest["layers"].append(manifest["layers"][0] | {"digest": digest_of(packed), "size": len(packed)})
        manifest["config"] |= {"digest": digest_of(body), "size": len(body)}
        self._blobs |= {digest_of(packed): packed, digest_of(body): body}
        digest = self.registry.push(REPOSITORY, tag, json.dumps(manifest).encode())
        self._layers[digest] = digest_of(packed)
        return digest

    def is_pulled(self, digest: str) -> bool:
        """Whether the own layer of an image was asked for."""
        return any(each.path.endswith(self._layers[digest]) for each in self.registry.asked)

    def slow_down(self) -> None:
        """Let pulls wait from now on."""
        self._slow = self._slow or asyncio.Event()

    def speed_up(self) -> None:
        """Let all pulls go on."""
        if self._slow is not None:
            assert self._loop is not None
            self._loop.call_soon_threadsafe(self._slow.set)
            self._slow = None

    def _answer(self, asked: RegistryRequest) -> Reply | None:
        name = asked.path.rpartition("/blobs/")[2]
        if name not in self._blobs:
            return None
        return Reply(body=self._blobs[name], pause=self._slow if name in self._layers.values() else None)


def _layer(mark: str) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        entry = tarfile.TarInfo("mark")
        entry.size = len(mark)
        tar.addfile(entry, io.BytesIO(mark.encode()))
    return out.getvalue()


@contextmanager
def program_images(archive: bytes) -> Iterator[ProgramImages]:
    """The registry, with no image yet."""
    images = ProgramImages(archive, FakeRegistry())
    with images.served():
        yield images
