"""A typed view of a volume set (docs/platform/volumeset.md#spec), for rules and engines.

It is made from a manifest, as written or in normal form. Capacities are in GB.
"""

from __future__ import annotations

import msgspec

from reconciler.model.kinds.base import Envelope, View
from reconciler.model.platform import KEEP_LAST


class Snapshots(View, frozen=True):
    """When snapshots are taken and how long they are kept; "" and None if they are left out."""

    create_final_snapshot: bool = True
    retention_duration: str = ""
    schedule: str | None = None


class Growth(View, frozen=True):
    """How volumes grow as they fill; None for fields that are left out."""

    max_capacity: int | None = None
    min_free_percentage: float | None = None
    scaling_factor: float | None = None


class Specification(View, frozen=True):
    """The body of a volume set; ``initial_capacity`` is 0 if it is left out."""

    initial_capacity: int = 0
    performance_class: str = ""
    file_system_type: str = "ext4"
    snapshots: Snapshots = Snapshots()
    autoscaling: Growth = Growth()
    storage_class_suffix: str = ""

    def __post_init__(self) -> None:
        if self.file_system_type == "shared":
            # Each replica has a volume of its own here.
            msgspec.structs.force_setattr(self, "file_system_type", "ext4")


class VolumeSet(Envelope, frozen=True):
    """A volume set."""

    spec: Specification = Specification()


_MOST_SNAPSHOTS = 9999


def read_specification(body: bytes) -> Specification:
    """The spec in the body of a volume set, in normal form."""
    return msgspec.json.decode(body, type=VolumeSet).spec


def read_keep_last(body: bytes) -> int | None:
    """How many snapshots of the schedule each volume keeps, by a tag; None for all."""
    return parse_keep_last(str(msgspec.json.decode(body, type=VolumeSet).tags.get(KEEP_LAST, "")))


def parse_keep_last(text: str) -> int | None:
    """``text`` as a number of snapshots, None if it is none."""
    return int(text) if text.isascii() and text.isdecimal() and 1 <= int(text[:9]) <= _MOST_SNAPSHOTS else None


def read_capacity(body: bytes) -> float:
    """The size of a new volume, in GB; ``body`` is that of the volume set, in normal form."""
    return float(read_specification(body).initial_capacity)
