"""The parts of a location that its workloads need together."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from reconciler.engines.context import EngineContext
from reconciler.engines.host.autoscaling.scaling import Scaling
from reconciler.engines.host.controllers.location import LocationController
from reconciler.engines.host.dataplane.publisher import ServicePublisher
from reconciler.engines.host.housekeeping import Housekeeping
from reconciler.engines.host.images.gate import ImageGate
from reconciler.engines.host.metrics.scraper import Scraper
from reconciler.engines.host.provisioning.provisioner import Provisioner
from reconciler.engines.host.provisioning.template_store import TemplateStore
from reconciler.engines.host.provisioning.tokens import Tokens
from reconciler.engines.host.runtimes.protocol import Runtime
from reconciler.engines.host.volumesets.volume_sets import VolumeSets
from reconciler.engines.protocol import EngineEvent
from reconciler.engines.volume_claims import VolumeClaims
from reconciler.engines.workload.template import PlatformSettings, TemplateBuilder


class LocationParts(msgspec.Struct, frozen=True):
    """``append_event`` takes events, ``changed`` wakes observers."""

    site: EngineContext
    runtime: Runtime
    claims: VolumeClaims
    tokens: Tokens
    builder: TemplateBuilder
    templates: TemplateStore
    provisioner: Provisioner
    volumes: VolumeSets
    controller: LocationController
    images: ImageGate
    publisher: ServicePublisher
    scaling: Scaling
    scraper: Scraper
    upkeep: Housekeeping
    append_event: Callable[[EngineEvent], None]
    changed: Callable[[], None]


def platform_settings(site: EngineContext, runtime: Runtime) -> PlatformSettings:
    """What templates need of the settings and the runtime of a location."""
    settings = site.settings
    return PlatformSettings(
        settings.org,
        site.location,
        settings.endpoint_domain,
        settings.scheme,
        runtime.name,
        runtime.resizes,
        settings.cloud_accounts,
        uses_images=runtime.image_store is not None,
        api=settings.api.endpoint if settings.api is not None else "",
        restrictions=settings.podman.restrictions if runtime.image_store is not None else (),
        user_namespaces=settings.podman.user_namespaces if runtime.image_store is not None else None,
    )
