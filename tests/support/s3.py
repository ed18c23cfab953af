"""An object store on this host: the part of S3 that a program needs to list and read a bucket."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

from tests.support.waiting import serving

ACCESS_KEY, SECRET_KEY = "AKIATEST", "hunter2-%(x)s`\\'"
_DATE = "2026-01-02T03:04:05.000Z"


class S3(ThreadingHTTPServer):
    """Buckets of objects by their names; only requests with ``ACCESS_KEY`` are allowed."""

    def __init__(self, buckets: dict[str, dict[str, bytes]]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.buckets = buckets

    @property
    def endpoint(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Answer with a list of objects, or with one of them."""
        path, query = urlsplit(self.path).path, parse_qs(urlsplit(self.path).query)
        bucket, _, name = unquote(path).strip("/").partition("/")
        server: Any = self.server
        objects = server.buckets.get(bucket)
        if f"Credential={ACCESS_KEY}/" not in self.headers.get("Authorization", ""):
            self._refuse(403, "InvalidAccessKeyId")
        elif objects is None:
            self._refuse(404, "NoSuchBucket")
        elif not name:
            self._answer(200, _listing(bucket, objects, query.get("prefix", [""])[0]))
        elif name in objects:
            first = int(self.headers.get("Range", "bytes=0-").removeprefix("bytes=").partition("-")[0])
            self._answer(206 if "Range" in self.headers else 200, objects[name][first:])
        else:
            self._refuse(404, "NoSuchKey")

    def do_HEAD(self) -> None:
        """Answer without the content."""
        self.do_GET()

    def log_message(self, *arguments: Any) -> None:
        """Log nothing."""

    def _refuse(self, status: int, code: str) -> None:
        self._answer(status, f"<Error><Code>{code}</Code><Message>{code}</Message></Error>".encode())

    def _answer(self, status: int, content: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Last-Modified", "Fri, 02 Jan 2026 03:04:05 GMT")
        self.send_header("ETag", '"e"')
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)


def _listing(bucket: str, objects: dict[str, bytes], prefix: str) -> bytes:
    """The objects and folders right below ``prefix``."""
    below = {name: name.removeprefix(prefix) for name in sorted(objects) if name.startswith(prefix)}
    folders = sorted({f"{prefix}{rest.partition('/')[0]}/" for rest in below.values() if "/" in rest})
    files = [name for name, rest in below.items() if "/" not in rest]
    parts = [f"<Name>{bucket}</Name><Prefix>{escape(prefix)}</Prefix><IsTruncated>false</IsTruncated>"]
    parts += [
        f"<Contents><Key>{escape(name)}</Key><LastModified>{_DATE}</LastModified><ETag>e</ETag>"
        f"<Size>{len(objects[name])}</Size></Contents>"
        for name in files
    ]
    parts += [f"<CommonPrefixes><Prefix>{escape(each)}</Prefix></CommonPrefixes>" for each in folders]
    return f"<ListBucketResult>{''.join(parts)}</ListBucketResult>".encode()


@contextmanager
def s3(**buckets: dict[str, bytes]) -> Iterator[S3]:
    """A store with ``buckets``."""
    server = S3(buckets)
    with serving(server):
        yield server
