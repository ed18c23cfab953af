"""What exists in every org from its beginning."""

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
    """The groups superusers and viewers, and the policies that are named after them, come with the org.

    A manifest of such a name changes what everybody in the org relies on. Nothing ever deletes a built-in resource:
    when the manifest is taken out again, what it wrote stays.
    """
    kind = Kind.POLICY if isinstance(resource, Policy) else Kind.GROUP
    if f"{kind}/{resource.name}" in BUILT_IN_RESOURCES:
        yield Flaw(("name",), f"the {kind} {resource.name} is built in: this changes it, and nothing will delete it",
                   f"give a {kind} of your own another name")  # fmt: skip
