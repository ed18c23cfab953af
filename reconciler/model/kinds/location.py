"""A typed view of a location (docs/platform/fields.md#location), for rules."""

from __future__ import annotations

from reconciler.model.kinds.base import Envelope


class Location(Envelope, frozen=True):
    """A place where workloads run; ``byok`` is the provider of your own locations."""

    provider: str = ""
    region: str = ""
