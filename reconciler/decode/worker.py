"""A short-lived process that decodes manifest files: frames of bytes on stdin, encoded Decoded on stdout."""

from __future__ import annotations

import gc
import struct
import sys
from typing import IO

import msgspec

from reconciler.bugs import internal_error
from reconciler.documents.lean_events import install_lean_events


class WorkerBug(msgspec.Struct, frozen=True):
    """The answer to a batch that met a bug: the fields of an InternalError."""

    kind: str
    place: str
    trace: str


LENGTH = struct.Struct("<I")


def read_frame(stream: IO[bytes]) -> bytes | None:
    """The next frame; None at the end. Raises EOFError if the stream ends inside a frame."""
    head = stream.read(LENGTH.size)
    if not head:
        return None
    body = stream.read(*LENGTH.unpack(head)) if len(head) == LENGTH.size else b""
    if len(head) < LENGTH.size or len(body) < LENGTH.unpack(head)[0]:
        raise EOFError("the stream ended inside a frame")
    return body


def frame_body(body: bytes) -> bytes:
    """``body`` after its length."""
    return LENGTH.pack(len(body)) + body


def main() -> None:
    """Read one frame with the ManifestContext, then batches (msgpack lists of ManifestFile), and answer each batch."""
    gc.disable()
    install_lean_events()
    # Imported late, since these modules copy the classes of YAML events when they are imported.
    from reconciler.manifests.decoder import ManifestFile, decode_many
    from reconciler.manifests.normalize import ManifestContext

    stdin, stdout = sys.stdin.buffer, sys.stdout.buffer
    encode = msgspec.msgpack.Encoder().encode
    dialect = msgspec.msgpack.decode(read_frame(stdin) or b"", type=ManifestContext)
    while (batch := read_frame(stdin)) is not None:
        files = msgspec.msgpack.decode(batch, type=list[ManifestFile])
        try:
            answer = encode([encode(decoded) for decoded in decode_many(files, dialect)])
        except Exception as error:  # noqa: BLE001 - the process that asked contains it
            bug = internal_error(error)
            answer = encode(WorkerBug(bug.kind, bug.place, bug.trace))
        stdout.write(frame_body(answer))
        stdout.flush()
        gc.collect(0)


if __name__ == "__main__":
    main()
