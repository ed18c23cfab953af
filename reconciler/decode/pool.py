"""Decodes many blobs in short-lived processes, and caches the results meanwhile."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from threading import Thread
from typing import NamedTuple

import msgspec

from reconciler.decode.cache import Blobs, Cache, DecodedFiles, holds_secrets, pack, unpack_file
from reconciler.decode.worker import WorkerBug, frame_body, read_frame
from reconciler.errors import InternalError
from reconciler.manifests.decoder import ManifestFile
from reconciler.manifests.normalize import ManifestContext
from reconciler.model.revision import FileChange, is_json

MAX_WORKERS = 9
"""The most processes: more would wait for the one that feeds them."""
BATCH = 100
BATCH_BYTES = 1 << 20
"""Bytes of a batch: small enough that the batches that wait for a worker fit into memory."""
CHUNK = 5000
"""Decoded files that are written to the cache in one transaction."""
MAX_BATCHES_AHEAD = 8
"""Batches that a worker has at once: 0.15 s of work, which bridges a write to the cache that delays the reader."""
PIPE = 1 << 20
"""Bytes that fit into a pipe: several answers. The default of 64 KB would block a worker."""

EncodedFile = tuple[FileChange, bytes]
"""A file and its encoded content."""


def decode_in_processes(
    changes: Iterable[FileChange], blobs: Blobs, cache: Cache, dialect: ManifestContext
) -> DecodedFiles:
    """Every change with its decoded file; files without secrets go to the cache."""
    with _CacheWriter(cache.put) as writer:
        for change, packed in _decode_batches(changes, blobs, dialect):
            decoded = unpack_file(packed)
            if not holds_secrets(decoded):
                writer.add(change.after, packed)
            yield change, decoded


class _CacheWriter:
    """Writes to the cache in a thread of its own, one chunk at a time.

    In the thread that feeds the workers, each write would leave them idle (2 s for 100,000 manifests). No other thread
    uses the records until the end.
    """

    def __init__(self, put: Callable[[list[tuple[str, bytes]]], None]) -> None:
        self._put = put
        self._fresh: list[tuple[str, bytes]] = []
        self._pool = ThreadPoolExecutor(1)
        self._writing: Future[None] | None = None

    def __enter__(self) -> _CacheWriter:
        return self

    def add(self, oid: str, packed: bytes) -> None:
        """Cache one decoded file."""
        self._fresh.append((oid, packed))
        if len(self._fresh) >= CHUNK:
            self._wait_for_write()
            self._writing = self._pool.submit(self._put, self._fresh)
            self._fresh = []

    def _wait_for_write(self) -> None:
        if self._writing is not None:
            self._writing.result()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Write the rest; after an error only finish the write in progress."""
        with self._pool:
            self._wait_for_write()
        if kind is None and self._fresh:
            self._put(self._fresh)


class Batch(NamedTuple):
    """Files that one worker decodes together, and their content."""

    changes: list[FileChange]
    content: list[ManifestFile]


def read_in_batches(changes: Iterable[FileChange], blobs: Blobs) -> Iterator[Batch]:
    """The content of ``changes`` in batches of bounded number and bytes; each is read when the caller takes it."""
    batch, size = Batch([], []), 0
    for change in changes:
        raw = blobs.read(change.after)
        batch.changes.append(change)
        batch.content.append(ManifestFile(raw, is_json(change.after)))
        size += len(raw)
        if len(batch.changes) == BATCH or size >= BATCH_BYTES:
            yield batch
            batch, size = Batch([], []), 0
    if batch.changes:
        yield batch


def _decode_batches(changes: Iterable[FileChange], blobs: Blobs, dialect: ManifestContext) -> Iterator[EncodedFile]:
    """Each worker that answers gets the next batch; several batches wait at each worker, so that none is idle."""
    rest = read_in_batches(changes, blobs)
    answers: Answers = SimpleQueue()
    workers = [_Worker(dialect, answers) for _ in range(min(os.cpu_count() or 1, MAX_WORKERS))]
    try:
        pending = sum(worker.send(next(rest, None)) for _ in range(MAX_BATCHES_AHEAD) for worker in workers)
        while pending:
            worker, answer = answers.get()
            pending += worker.send(next(rest, None)) - 1
            yield from worker.decode_answer(answer)
    finally:
        for worker in workers:
            worker.stop()


class _Worker:
    """One process and its batches; started by exec, so that it shares neither locks nor memory with this one.

    One thread writes to it and another reads its answers into ``answers`` (None: it has ended), so that a full pipe
    blocks neither side.
    """

    def __init__(self, dialect: ManifestContext, answers: Answers) -> None:
        command = [sys.executable, "-I", "-m", "reconciler.decode.worker"]
        # Its own group: at Ctrl-C this process ends it, and it prints nothing itself.
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, pipesize=PIPE, process_group=0
        )
        self.sent: list[list[FileChange]] = []
        self.frames: SimpleQueue[bytes] = SimpleQueue()
        self.frames.put(pack(dialect))
        for task in (self._write, partial(self._read, answers)):
            Thread(target=task, daemon=True).start()

    def send(self, batch: Batch | None) -> bool:
        """Queue a batch for the process; False if there is none."""
        if batch is not None:
            self.frames.put(pack(batch.content))
            self.sent.append(batch.changes)
        return batch is not None

    def decode_answer(self, answer: bytes | None) -> Iterator[EncodedFile]:
        """The decoded files of the oldest batch.

        Raises ChildProcessError if the process ended early, and InternalError if it met a bug.
        """
        if answer is None:
            raise ChildProcessError(f"a decoding process ended with code {self.process.wait()}")
        decoded = msgspec.msgpack.decode(answer, type=list[bytes] | WorkerBug)
        if isinstance(decoded, WorkerBug):
            raise InternalError(decoded.kind, decoded.place, decoded.trace)
        yield from zip(self.sent.pop(0), decoded, strict=True)

    def stop(self) -> None:
        """End the process, whatever it is doing."""
        self.process.kill()
        self.frames.put(b"")
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()

    def _write(self) -> None:
        assert self.process.stdin is not None
        with suppress(OSError, ValueError):  # _read reports a process that has ended
            while body := self.frames.get():
                self.process.stdin.write(frame_body(body))
                self.process.stdin.flush()

    def _read(self, answers: Answers) -> None:
        assert self.process.stdout is not None
        answer: bytes | None = b""
        while answer is not None:
            try:
                answer = read_frame(self.process.stdout)
            except (EOFError, OSError, ValueError):  # killed in the middle of an answer
                answer = None
            answers.put((self, answer))


Answers = SimpleQueue[tuple[_Worker, bytes | None]]
