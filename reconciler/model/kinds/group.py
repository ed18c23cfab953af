"""A typed view of a group (4-fields.md, section 8): what rules look at."""

from __future__ import annotations

from reconciler.model.kinds.base import Envelope
from reconciler.model.query import Query


class Group(Envelope, frozen=True):
    """A group; its members are listed, found by a query, or both."""

    member_links: tuple[str, ...] = ()
    member_query: Query | None = None
