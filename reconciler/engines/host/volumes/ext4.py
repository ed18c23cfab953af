"""Images with an ext4: its superblock, its repair, and its growth while it is not mounted."""

from __future__ import annotations

import struct
from pathlib import Path

from reconciler.engines.host.volumes.programs import run_program
from reconciler.engines.host.volumes.sparse import extend_file
from reconciler.errors import EngineError
from reconciler.reasons import Reason

_SUPERBLOCK = 1024
_BLOCKS_LOW, _BLOCK_SCALE, _STATE, _BLOCKS_HIGH = 4, 24, 58, 336
"""Places in the superblock."""
_ERRORS = 2
_REPAIRED = 1


def has_errors(image: Path) -> bool:
    """Whether the file system recorded errors of its own while it was mounted. Raises OSError."""
    return bool(_read_superblock_field(image, "<H", _STATE) & _ERRORS)


def repair_image(image: Path) -> None:
    """Repair what can be repaired without a decision. Raises EngineError for an image that needs one."""
    try:
        run_program("e2fsck", "-f", "-p", image, accepted=(0, _REPAIRED))
    except EngineError as error:
        raise EngineError(
            f"{error}. Its file system has errors that need a decision, so it is not mounted: restore a snapshot, or "
            f"repair it with e2fsck {image}",
            reason=Reason.VOLUME_DAMAGED,
        ) from None


def grow_image(image: Path, size: int) -> None:
    """Grow the image, which is not mounted, and its file system to ``size`` bytes. Raises OSError and EngineError."""
    extend_file(image, size)
    repair_image(image)  # resize2fs refuses one that was not checked
    run_program("resize2fs", image)


def missing_blocks(image: Path, size: int) -> int:
    """The blocks that a file system of ``size`` bytes has, if it has fewer, otherwise 0. Raises OSError.

    A mounted one may have more than its image says.
    """
    low, scale, high = (_read_superblock_field(image, "<I", at) for at in (_BLOCKS_LOW, _BLOCK_SCALE, _BLOCKS_HIGH))
    blocks = size // (1024 << scale)
    return blocks if blocks > (high << 32 | low) else 0


def _read_superblock_field(image: Path, form: str, at: int) -> int:
    with image.open("rb") as file:
        file.seek(_SUPERBLOCK + at)
        (number,) = struct.unpack(form, file.read(struct.calcsize(form)))
    return int(number)
