"""Names of locations."""

from __future__ import annotations

from collections.abc import Iterator

from reconciler.manifests.rules.registry import register_rule
from reconciler.manifests.rules.text import quote_text
from reconciler.model.finding import Flaw
from reconciler.model.key import Kind
from reconciler.model.kinds.location import Location
from reconciler.model.platform import OWN_PROVIDER


@register_rule("location-name", "docs/platform/fields.md#location", Kind.LOCATION)
def check_location_name(location: Location) -> Iterator[Flaw]:
    """A location is named after its provider and region, unless it is one of your own (provider byok).

    Containers get their location by this name, and read provider and region from it. A location of a cloud provider has
    no other name.
    """
    provider, region = location.provider, location.region
    if not provider or provider == OWN_PROVIDER:
        return
    start, _, rest = location.name.partition("-")
    if start == provider and (rest == region if region else rest):
        return
    expected = f"{provider}-{region or 'REGION'}"
    message = f"{quote_text(location.name)} is not the name of a location of {provider}"
    hint = f"write {quote_text(expected)}, or provider: {OWN_PROVIDER} for a location of your own"
    yield Flaw(("name",), message, hint, (("provider",), ("region",)))
