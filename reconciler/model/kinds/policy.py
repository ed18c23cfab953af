"""A typed view of a policy (docs/platform/fields.md#policy), for rules."""

from __future__ import annotations

from reconciler.model.kinds.base import Envelope, View
from reconciler.model.query import Query


class Binding(View, frozen=True):
    """Permissions for some principals."""

    permissions: tuple[str, ...] = ()
    principal_links: tuple[str, ...] = ()


class Policy(Envelope, frozen=True):
    """A policy; its targets are ``target`` (all), links, or a query."""

    target_kind: str = ""
    target: str = ""
    target_links: tuple[str, ...] = ()
    target_query: Query | None = None
    bindings: tuple[Binding, ...] = ()
