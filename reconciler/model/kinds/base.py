"""The base of the typed views of all kinds, which are made from a manifest as written, or from its normal form.

Every field has a default, so that a view can be made of a manifest with faults too.
"""

from __future__ import annotations

from typing import Any

import msgspec


class View(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """Fields by their names in manifests; those that no rule or engine reads are omitted."""


class Envelope(View, frozen=True):
    """The fields of every kind (docs/platform/fields.md#manifests); ``gvc`` is "" if the directory decides it."""

    name: str = ""
    description: str = ""
    gvc: str = ""
    tags: dict[str, Any] = {}
