"""Rules for the queries of all kinds (docs/platform/fields.md#queries)."""

from __future__ import annotations

from collections.abc import Iterator

from reconciler.manifests.rules.registry import register_rule
from reconciler.manifests.rules.text import quote_text
from reconciler.model.finding import Flaw, Pointer
from reconciler.model.key import Kind
from reconciler.model.kinds.group import Group
from reconciler.model.kinds.gvc import Gvc
from reconciler.model.kinds.policy import Policy
from reconciler.model.query import UNARY, Query


@register_rule("query-value", "docs/platform/fields.md#queries", Kind.GVC, Kind.POLICY, Kind.GROUP)
def comparison_with_nothing(holder: Gvc | Policy | Group) -> Iterator[Flaw]:
    """A term of a query has a value to compare with.

    Only `exists` and `!exists` need none.
    """
    at, query = _get_query(holder)
    for number, term in enumerate(query.spec.terms if query else ()):
        if term.value is None and term.op not in UNARY:
            pointer = (*at, "spec", "terms", number)
            message = f"the operator {quote_text(term.op)} needs a `value`"
            hint = "add one, for example `value: aws`; to match any value, write `op: exists`"
            yield Flaw(pointer, message, hint, ((*pointer, "value"), (*pointer, "op")))


@register_rule("query-kind", "docs/platform/fields.md#queries", Kind.POLICY)
def targets_of_another_kind(policy: Policy) -> Iterator[Flaw]:
    """The kind of a query is that of its field.

    `locationQuery` finds locations, `memberQuery` users, and `targetQuery` resources of the policy's `targetKind`.
    """
    query = policy.target_query
    if query is not None and query.kind and policy.target_kind and query.kind != policy.target_kind:
        message = f"the query is for {quote_text(query.kind)}, the policy for {quote_text(policy.target_kind)}"
        hint = f"write `kind: {policy.target_kind}`, or leave it out"
        yield Flaw(("targetQuery", "kind"), message, hint, (("targetKind",),))


def _get_query(holder: Gvc | Policy | Group) -> tuple[Pointer, Query | None]:
    """The query of a resource, if it has one, and its pointer."""
    if isinstance(holder, Policy):
        return ("targetQuery",), holder.target_query
    if isinstance(holder, Group):
        return ("memberQuery",), holder.member_query
    placement = holder.spec.static_placement
    return ("spec", "staticPlacement", "locationQuery"), placement.location_query if placement else None
