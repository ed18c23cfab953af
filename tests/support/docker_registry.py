"""A real registry, that of Debian's package, with small images made here: the same bytes each time."""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import json
import re
import subprocess
import tarfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from tests.support.programs import tool
from tests.support.registry import OCI_INDEX, OCI_MANIFEST, digest_of

PATIENCE = 60.0
"""Seconds in which the registry must listen."""
USER, PASSWORD = "ann", "right"
_HTPASSWD = "ann:$2y$05$abcdefghijklmnopqrstuu8xaCxxL82bnl.UY74PMksDxIJShppPC"
_LISTENS = re.compile(r"listening on (127\.0\.0\.1:\d+)")
_CONFIG = """
version: 0.1
log: {level: info, accesslog: {disabled: false}}
storage: {filesystem: {rootdirectory: %s}, delete: {enabled: true}}
http: {addr: "127.0.0.1:0", relativeurls: true}
"""


class Image(msgspec.Struct, frozen=True):
    """An image for one platform: its manifest and the blobs that this names."""

    manifest: bytes
    blobs: dict[str, bytes]
    architecture: str

    @property
    def digest(self) -> str:
        """The digest of the manifest."""
        return digest_of(self.manifest)

    @property
    def layer(self) -> str:
        """The digest of the only layer."""
        found: str = json.loads(self.manifest)["layers"][0]["digest"]
        return found


def image(mark: str, architecture: str = "amd64", size: int = 0) -> Image:
    """An image with a file that holds ``mark``, and ``size`` bytes that cannot be compressed."""
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, content in (("mark", mark.encode()), ("filler", _noise(mark, size))):
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    layer = gzip.compress(raw.getvalue(), 1, mtime=0)
    config = json.dumps(
        {
            "architecture": architecture,
            "os": "linux",
            "config": {"Cmd": ["/mark"]},
            "rootfs": {"type": "layers", "diff_ids": [digest_of(raw.getvalue())]},
        }
    ).encode()
    listed = {
        "config": ("application/vnd.oci.image.config.v1+json", config),
        "layers": ("application/vnd.oci.image.layer.v1.tar+gzip", layer),
    }
    parts: dict[str, Any] = {
        name: {"mediaType": kind, "digest": digest_of(content), "size": len(content)}
        for name, (kind, content) in listed.items()
    }
    body = {"schemaVersion": 2, "mediaType": OCI_MANIFEST, "config": parts["config"], "layers": [parts["layers"]]}
    return Image(json.dumps(body).encode(), {digest_of(each): each for each in (config, layer)}, architecture)


def _noise(mark: str, size: int) -> bytes:
    return hashlib.shake_128(mark.encode()).digest(size)


class DockerRegistry:
    """A running registry; ``path`` has its files."""

    def __init__(self, path: Path, host: str, password: str) -> None:
        self.path = path
        self.host = host
        self._login = f"{USER}:{password}" if password else ""

    def push(self, repository: str, tag: str, *images: Image) -> str:
        """Let ``tag`` mean the image, or an index of several; its digest."""
        for image in images:
            for digest, content in image.blobs.items():
                where = self._send("POST", f"/v2/{repository}/blobs/uploads/").headers["Location"]
                mark = "&" if "?" in where else "?"
                self._send("PUT", f"{where}{mark}digest={digest}", content, "application/octet-stream")
            self._send("PUT", f"/v2/{repository}/manifests/{image.digest}", image.manifest, OCI_MANIFEST)
        body, kind = (images[0].manifest, OCI_MANIFEST) if len(images) == 1 else (_index(images), OCI_INDEX)
        self._send("PUT", f"/v2/{repository}/manifests/{tag}", body, kind)
        return digest_of(body)

    def delete(self, repository: str, digest: str) -> None:
        """Delete a manifest."""
        self._send("DELETE", f"/v2/{repository}/manifests/{digest}")

    def blob(self, digest: str) -> Path:
        """The file of a blob; to be deleted or cut."""
        code = digest.partition(":")[2]
        return self.path / "data" / "docker/registry/v2/blobs/sha256" / code[:2] / code / "data"

    def requests(self, method: str, repository: str, name: str = "") -> int:
        """The number of requests for a manifest, by the log of the registry."""
        line = f'"{method} /v2/{repository}/manifests/{name}'
        return (self.path / "log").read_text(errors="replace").count(line)

    def _send(self, method: str, place: str, body: bytes | None = None, kind: str = "") -> Any:
        url = place if place.startswith("http") else f"http://{self.host}{place}"
        request = urllib.request.Request(url, body, {"Content-Type": kind} if kind else {}, method=method)
        if self._login:
            request.add_header("Authorization", f"Basic {base64.b64encode(self._login.encode()).decode()}")
        return urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=30)


def _index(images: tuple[Image, ...]) -> bytes:
    entries = [
        {
            "mediaType": OCI_MANIFEST,
            "digest": image.digest,
            "size": len(image.manifest),
            "platform": {"os": "linux", "architecture": image.architecture},
        }
        for image in images
    ]
    return json.dumps({"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": entries}).encode()


@contextmanager
def docker_registry(path: Path, *, login: bool = False) -> Iterator[DockerRegistry]:
    """A registry with its files in ``path``; with ``login`` it wants USER and PASSWORD.

    Without the program the test skips; in CI it fails.
    """
    program = tool("docker-registry", "docker-registry")
    path.mkdir(parents=True, exist_ok=True)
    text = _CONFIG % (path / "data")
    if login:
        (path / "htpasswd").write_text(f"{_HTPASSWD}\n")
        text += f"auth: {{htpasswd: {{realm: test, path: {path / 'htpasswd'}}}}}\n"
    (path / "config.yml").write_text(text)
    with (path / "log").open("wb") as log:
        process = subprocess.Popen([program, "serve", str(path / "config.yml")], stdout=log, stderr=log)
    try:
        yield DockerRegistry(path, _listening(process, path / "log"), PASSWORD if login else "")
    finally:
        process.kill()
        process.wait()


def _listening(process: subprocess.Popen[bytes], log: Path) -> str:
    deadline = time.monotonic() + PATIENCE
    while process.poll() is None and time.monotonic() < deadline:
        if found := _LISTENS.search(log.read_text(errors="replace")):
            return found[1]
        time.sleep(0.01)
    raise AssertionError(f"the registry does not listen: {log.read_text(errors='replace')[-1000:]}")
