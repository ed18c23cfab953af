"""Resources that exist in every org from its beginning."""

from __future__ import annotations

from collections.abc import Iterator

from reconciler.manifests.rules.registry import register_warning
from reconciler.model.finding import Flaw
from reconciler.model.key import Kind
from reconciler.model.kinds.base import Envelope
from reconciler.model.kinds.group import Group
from reconciler.model.kinds.policy import Policy
from reconciler.model.platform import BUILT_IN_RESOURCES

_KINDS = {Policy: Kind.POLICY, Group: Kind.GROUP}
"""View → its kind; an audit context has only the view of every kind."""


@register_warning("built-in-resource", "docs/platform/fields.md#group", Kind.AUDITCTX, Kind.GROUP, Kind.POLICY)
def built_in(resource: Envelope) -> Iterator[Flaw]:
    """The groups superusers and viewers, the policies with their names, and the audit context platform are built in.

    A manifest with such a name changes a resource that everyone in the org relies on. A built-in resource is never
    deleted: when the manifest is removed again, its changes stay.
    """
    kind = _KINDS.get(type(resource), Kind.AUDITCTX)
    if f"{kind}/{resource.name}" in BUILT_IN_RESOURCES:
        yield Flaw(
            ("name",),
            f"the {kind} {resource.name} is built in: this changes it, and it is never deleted",
            "give it another name",
        )
