"""A copy of an image becomes equal to it again, by what differs alone."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from reconciler.engines.host.volumes.patch import patch_image
from reconciler.engines.host.volumes.sparse import copy_image, digest_image, get_allocated_bytes
from reconciler.errors import EngineError
from reconciler.reasons import Reason
from tests.engines.host.volumes.kit import refused

MIB = 1 << 20
BLOCK = 64 << 10


@pytest.fixture
def image(tmp_path: Path) -> Path:
    """An image of 64 MiB, with data at its begin and in the middle."""
    path = tmp_path / "image"
    with path.open("wb") as file:
        file.write(os.urandom(3 * MIB))
        file.seek(32 * MIB + 5000)
        file.write(os.urandom(5 * MIB))
        file.truncate(64 * MIB)
    return path


def change(image: Path, at: int, data: bytes) -> None:
    """Write into an image."""
    with image.open("r+b") as file:
        file.seek(at)
        file.write(data)


def test_only_blocks_that_differ_are_copied(image: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    copy_image(image, copy)
    assert patch_image(image, copy) == 0
    change(image, 2 * MIB + 3, b"one byte more")
    change(image, 50 * MIB, b"where there was a hole")
    assert BLOCK < patch_image(image, copy) <= 2 * BLOCK
    assert digest_image(copy) == digest_image(image)


def test_any_older_copy_becomes_equal(image: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    with copy.open("wb") as file:
        file.seek(10 * MIB)
        file.write(os.urandom(2 * MIB))
        file.truncate(80 * MIB)
    patch_image(image, copy)
    assert copy.read_bytes() == image.read_bytes()
    assert get_allocated_bytes(copy) < 12 * MIB, "holes stay holes"


def test_an_image_that_grew_is_copied_to_its_end(image: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    copy_image(image, copy)
    os.truncate(image, 64 * MIB + 777)
    change(image, 64 * MIB + 700, b"x" * 77)
    patch_image(image, copy)
    assert copy.read_bytes() == image.read_bytes()


def test_it_ends_at_the_deadline(image: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    copy_image(image, copy)
    with pytest.raises(EngineError) as caught:
        patch_image(image, copy, time.monotonic() - 1)
    refused(caught, Reason.FREEZE_TIMEOUT)
