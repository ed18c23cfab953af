"""Many blobs decoded in short-lived processes, and remembered beside that."""

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

from reconciler.decode.cache import Blobs, Cache, DecodedFiles, holds_secrets, pack, unpack
from reconciler.decode.worker import WorkerBug, frame, read_frame
from reconciler.errors import InternalError
from reconciler.manifests.normalize import ManifestContext
from reconciler.model.revision import FileChange

MAX_WORKERS = 9
"""Processes at most: so many have something to do where it is worth starting any."""
BATCH = 100
BATCH_BYTES = 1 << 20
"""Bytes of a batch, so that large files do not fill the memory with what waits for a worker."""
CHUNK = 5000
"""Decoded files that are written to the cache in one transaction."""
MAX_BATCHES_AHEAD = 8
"""Batches that a worker has at once, so that it goes on while its answers wait to be read: 0.15 s of work, since
writing to the cache takes half as long."""
PIPE = 1 << 20
"""Bytes that fit into a pipe: some answers (100 of 2 KB each), where the usual 64 KB would hold a worker up."""

EncodedFile = tuple[FileChange, bytes]
"""A file and what it says, packed."""


def decode_in_processes(
    changes: Iterable[FileChange], blobs: Blobs, cache: Cache, dialect: ManifestContext
) -> DecodedFiles:
    """Every change with what its file says, put into the cache on the way where it has no secrets."""
    with _CacheWriter(cache.put) as remembering:
        for change, packed in _decode(changes, blobs, dialect):
            decoded = unpack(packed)
            if not holds_secrets(decoded):
                remembering.add(change.after, packed)
            yield change, decoded


class _CacheWriter:
    """Writes to the cache beside the decoding, one chunk at a time.

    The disk is waited for in another thread: here, decoding processes would run out of work meanwhile (2 s of 100,000
    manifests). Nobody else uses the records until the end.
    """

    def __init__(self, put: Callable[[list[tuple[str, bytes]]], None]) -> None:
        self._put = put
        self._fresh: list[tuple[str, bytes]] = []
        self._pool = ThreadPoolExecutor(1)
        self._writing: Future[None] | None = None

    def __enter__(self) -> _CacheWriter:
        return self

    def add(self, oid: str, packed: bytes) -> None:
        """Remember one decoded file."""
        self._fresh.append((oid, packed))
        if len(self._fresh) >= CHUNK:
            self._written()
            self._writing = self._pool.submit(self._put, self._fresh)
            self._fresh = []

    def _written(self) -> None:
        if self._writing is not None:
            self._writing.result()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Everything is written; after an error only what is being written already."""
        with self._pool:
            self._written()
        if kind is None and self._fresh:
            self._put(self._fresh)


class Batch(NamedTuple):
    """Files that one worker decodes in one go, and their content."""

    changes: list[FileChange]
    content: list[bytes]


def read_in_batches(changes: Iterable[FileChange], blobs: Blobs) -> Iterator[Batch]:
    """The content of ``changes`` in batches, each read when it is asked for and bounded in number and in bytes."""
    batch, size = Batch([], []), 0
    for change in changes:
        raw = blobs.read(change.after)
        batch.changes.append(change)
        batch.content.append(raw)
        size += len(raw)
        if len(batch.changes) == BATCH or size >= BATCH_BYTES:
            yield batch
            batch, size = Batch([], []), 0
    if batch.changes:
        yield batch


def _decode(changes: Iterable[FileChange], blobs: Blobs, dialect: ManifestContext) -> Iterator[EncodedFile]:
    """Batches go to whichever worker has answered, so that none waits for another; each has some to do meanwhile."""
    rest = read_in_batches(changes, blobs)
    answers: Answers = SimpleQueue()
    workers = [_Worker(dialect, answers) for _ in range(min(os.cpu_count() or 1, MAX_WORKERS))]
    try:
        owed = sum(worker.give(next(rest, None)) for _ in range(MAX_BATCHES_AHEAD) for worker in workers)
        while owed:
            worker, answer = answers.get()
            owed += worker.give(next(rest, None)) - 1
            yield from worker.decode_answer(answer)
    finally:
        for worker in workers:
            worker.stop()


class _Worker:
    """One process and what it was given; started by exec, so that it holds neither lock nor memory of ours.

    A thread of its own writes to it and another one reads, into ``answers`` (None: it has ended): a full pipe holds
    nobody up.
    """

    def __init__(self, dialect: ManifestContext, answers: Answers) -> None:
        command = [sys.executable, "-I", "-m", "reconciler.decode.worker"]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, pipesize=PIPE)
        self.sent: list[list[FileChange]] = []
        self.frames: SimpleQueue[bytes] = SimpleQueue()
        self.frames.put(pack(dialect))
        for task in (self._write, partial(self._read, answers)):
            Thread(target=task, daemon=True).start()

    def give(self, batch: Batch | None) -> bool:
        """Hand over a batch; False where there is none."""
        if batch is not None:
            self.frames.put(pack(batch.content))
            self.sent.append(batch.changes)
        return batch is not None

    def decode_answer(self, answer: bytes | None) -> Iterator[EncodedFile]:
        """``answer`` to the oldest batch.

        Raises ChildProcessError where the process ended before its time, and InternalError where it met a bug.
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
        with suppress(OSError, ValueError):  # a process that is gone shows itself where its answer is read
            while body := self.frames.get():
                self.process.stdin.write(frame(body))
                self.process.stdin.flush()

    def _read(self, answers: Answers) -> None:
        assert self.process.stdout is not None
        answer: bytes | None = b""
        while answer is not None:
            try:
                answer = read_frame(self.process.stdout)
            except (EOFError, OSError, ValueError):  # it died in the middle of an answer, or was stopped
                answer = None
            answers.put((self, answer))


Answers = SimpleQueue[tuple[_Worker, bytes | None]]
