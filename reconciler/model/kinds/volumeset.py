"""A typed view of a volume set (docs/platform/volumeset.md#spec): what rules and engines look at.

It is made from a manifest as it is written or in normal form. Capacities are in GB.
"""

from __future__ import annotations

import msgspec

from reconciler.model.kinds.base import Envelope, View


class Snapshots(View, frozen=True):
    """When snapshots are taken and how long they are kept; "" and None where nothing is said."""

    create_final_snapshot: bool = True
    retention_duration: str = ""
    schedule: str | None = None


class Growth(View, frozen=True):
    """How volumes grow as they fill; each None where it is left out."""

    max_capacity: int | None = None
    min_free_percentage: float | None = None
    scaling_factor: float | None = None


class Specification(View, frozen=True):
    """The body of a volume set; ``initial_capacity`` is 0 where it is left out."""

    initial_capacity: int = 0
    performance_class: str = ""
    file_system_type: str = "ext4"
    snapshots: Snapshots = Snapshots()
    autoscaling: Growth = Growth()
    storage_class_suffix: str = ""


class VolumeSet(Envelope, frozen=True):
    """A volume set."""

    spec: Specification = Specification()


_decoder = msgspec.json.Decoder(VolumeSet)


def read_capacity(body: bytes) -> float:
    """The size of a new volume, in GB, of the volume set whose body in normal form is ``body``."""
    return float(_decoder.decode(body).spec.initial_capacity)
