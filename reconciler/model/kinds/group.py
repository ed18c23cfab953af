"""A typed view of a group (docs/platform/fields.md#group), for rules."""

from __future__ import annotations

from reconciler.model.kinds.base import Envelope
from reconciler.model.query import Query


class Group(Envelope, frozen=True):
    """A group; its members are listed, found by a query, or both."""

    member_links: tuple[str, ...] = ()
    member_query: Query | None = None
