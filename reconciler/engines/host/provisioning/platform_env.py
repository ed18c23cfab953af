"""The variables that the platform sets in every container (docs/platform/workload.md#built-in-variables)."""

from __future__ import annotations

import msgspec

from reconciler.engines.names import make_alias
from reconciler.model.kinds.location import Location
from reconciler.model.kinds.workload import Variable
from reconciler.model.platform import LOCATION_PROVIDERS, OWN_PROVIDER, SPELLING

_location = msgspec.json.Decoder(Location)


class PlatformEnvContext(msgspec.Struct, frozen=True):
    """The inputs that all containers of a workload at a location share.

    ``token`` belongs to the workload; ``gvc_env`` are the variables of the GVC in normal form. ``scheme`` is how
    manifests spell ``platform``. ``api`` is the address of the API, "" if there is none.
    """

    org: str
    gvc: str
    alias: str
    location: str
    provider: str
    region: str
    workload: str
    version: int
    namespace: str
    token: str
    endpoint_domain: str
    gvc_env: tuple[Variable, ...] = ()
    scheme: str = SPELLING
    api: str = ""

    def __repr__(self) -> str:
        return f"PlatformEnvContext(gvc={self.gvc!r}, workload={self.workload!r}, location={self.location!r})"


def built_in_variables(context: PlatformEnvContext, image: str) -> dict[str, str]:
    """The built-in variables for a container of ``image``.

    If manifests use another spelling of ``platform``, each variable is set under both names.
    """
    values = {
        "GLOBAL_ENDPOINT": f"{context.workload}-{context.alias}.{context.endpoint_domain}",
        "GVC": context.gvc,
        "GVC_ALIAS": context.alias,
        "LOCATION": f"{context.provider}-{context.region}",
        "NAMESPACE": context.namespace,
        "PROVIDER": context.provider,
        "ORG": context.org,
        "WORKLOAD": context.workload,
        "WORKLOAD_VERSION": str(context.version),
        "TOKEN": context.token,
        "IMAGE": image,
    }
    if context.api:
        values["ENDPOINT"] = context.api
    spellings = (SPELLING.upper(), context.scheme.upper())
    return {f"{spelling}_{name}": value for spelling in spellings for name, value in values.items()}


def provider_and_region(location: str, body: bytes | None) -> tuple[str, str]:
    """Provider and region of a location: from its manifest, otherwise from its name ``<provider>-<region>``.

    ``body`` is the manifest in normal form, None without one. An own location, such as ``local``, has the provider
    byok; without a region in its manifest, its name is the region.
    """
    declared = _location.decode(body) if body is not None else Location()
    provider, _, region = location.partition("-")
    if provider not in LOCATION_PROVIDERS or not region:
        provider, region = OWN_PROVIDER, location
    if declared.provider == OWN_PROVIDER != provider:
        region = location
    return declared.provider or provider, declared.region or region


def namespace_of(org: str, gvc: str) -> str:
    """The namespace of a GVC's containers: looks random, and is always the same."""
    return make_alias(f"{org}/{gvc}", "namespace")
