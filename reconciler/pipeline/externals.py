"""Resources that exist without a manifest."""

from __future__ import annotations

import msgspec

from reconciler.engines.host.runtimes.plugins import AUTO, runtime_plugin
from reconciler.errors import UsageError
from reconciler.manifests.links import LinkError, parse_link
from reconciler.settings import Settings


class ExternalResources(msgspec.Struct, frozen=True):
    """Resources without a manifest: locations that the settings bind, and links listed as external.

    ``prune_disabled``: nothing is pruned. ``settings_unknown``: there are no settings, so any location and any other
    org's resource may exist. At ``process_locations``, containers are programs of the host, without images.
    """

    locations: frozenset[str] = frozenset()
    external: frozenset[str] = frozenset()
    prune_disabled: bool = False
    settings_unknown: bool = False
    process_locations: frozenset[str] = frozenset()

    @classmethod
    def of(cls, settings: Settings, org: str = "") -> ExternalResources:
        """The external resources of ``settings``; ``org`` overrides their org. Raises UsageError."""
        try:
            external = frozenset(parse_link(text, org or settings.org, "").target for text in settings.external)
        except LinkError as error:
            raise UsageError(f"external: {error}") from None
        bound = settings.locations
        hosted = {name: each.runtime for name, each in bound.items() if each.engine == "host"}
        # With `auto`, the machine of the daemon decides whether images run, and this may be another machine.
        processes = {name for name, each in hosted.items() if each != AUTO and not runtime_plugin(each).uses_images}
        return cls(frozenset(bound), external, not settings.prune.enabled, process_locations=frozenset(processes))
