"""Many files for the decoding processes: what waits for them is bounded, however large they are."""

from __future__ import annotations

from itertools import islice

from reconciler.decode.cache import Blobs
from reconciler.decode.decode import LARGE
from reconciler.decode.pool import BATCH, BATCH_BYTES, read_in_batches
from reconciler.model.revision import FileChange

CHANGES = [FileChange(f"{number}.yaml", "", f"{number}") for number in range(1_000)]


def test_a_batch_is_bounded_in_bytes_and_read_when_it_is_asked_for() -> None:
    read: list[str] = []

    def content(blob: str) -> bytes:
        read.append(blob)
        return bytes(LARGE)

    found = list(islice(read_in_batches(CHANGES, Blobs(lambda _: LARGE, content)), 8))
    assert [len(batch.changes) for batch in found] == [1] * 8
    assert len(read) == 8


def test_small_files_go_by_number() -> None:
    batches = list(read_in_batches(CHANGES[:250], Blobs(len, lambda _: bytes(1_500))))
    assert [len(batch.content) for batch in batches] == [BATCH, BATCH, 50]
    assert [change for batch in batches for change in batch.changes] == CHANGES[:250]
    assert all(sum(len(file.raw) for file in batch.content) < BATCH_BYTES for batch in batches)
