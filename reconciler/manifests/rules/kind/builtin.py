"""Resources that exist in every org from its beginning."""

from __future__ import annotations

from collections.abc import Iterator

from reconciler.manifests.rules.registry import warning
from reconciler.model.finding import Flaw
from reconciler.model.key import Kind
from reconciler.model.kinds.group import Group
from reconciler.model.kinds.policy import Policy
from reconciler.model.platform import BUILT_IN_RESOURCES


@warning("built-in-resource", "docs/platform/fields.md#group", Kind.GROUP, Kind.POLICY)
def built_in(resource: Group | Policy) -> Iterator[Flaw]:
    """The groups superusers and viewers, and the policies with their names, are built in.

    A manifest with such a name changes a resource that everyone in the org relies on. A built-in resource is never
    deleted: when the manifest is removed again, its changes stay.
    """
    kind = Kind.POLICY if isinstance(resource, Policy) else Kind.GROUP
    if f"{kind}/{resource.name}" in BUILT_IN_RESOURCES:
        yield Flaw(("name",), f"the {kind} {resource.name} is built in: this changes it, and it is never deleted",
                   f"give a {kind} another name")  # fmt: skip
