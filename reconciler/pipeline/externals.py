"""Resources that exist without a manifest."""

from __future__ import annotations

import msgspec

from reconciler.engines.plugin import SupportsHostPrograms, find_plugin
from reconciler.errors import UsageError
from reconciler.manifests.links import LinkError, parse_link
from reconciler.settings import Settings


class ExternalResources(msgspec.Struct, frozen=True):
    """Resources without a manifest: locations that the settings bind, and links listed as external.

    ``prune_disabled``: nothing is pruned. ``settings_unknown``: there are no settings, so any location and any other
    org's resource may exist. At ``process_locations``, containers are programs of the host, without images. ``claimed``
    are those that the repository itself lists: they only satisfy its own links, while nothing declares their targets.
    """

    locations: frozenset[str] = frozenset()
    external: frozenset[str] = frozenset()
    prune_disabled: bool = False
    settings_unknown: bool = False
    process_locations: frozenset[str] = frozenset()
    claimed: frozenset[str] = frozenset()

    @classmethod
    def of(cls, settings: Settings, org: str = "") -> ExternalResources:
        """The external resources of ``settings``; ``org`` overrides their org. Raises UsageError."""
        try:
            external = frozenset(parse_link(text, org or settings.org, "").target for text in settings.external)
        except LinkError as error:
            raise UsageError(f"external: {error}") from None
        bound = settings.locations
        processes = frozenset(name for name in bound if _runs_host_programs(settings, name))
        return cls(frozenset(bound), external, not settings.prune.enabled, process_locations=processes)


def _runs_host_programs(settings: Settings, location: str) -> bool:
    """Whether a location surely runs programs of its host; this may be another machine than that of the daemon."""
    plugin = find_plugin(settings.locations[location].engine)
    return isinstance(plugin, SupportsHostPrograms) and plugin.runs_host_programs(settings, location)
