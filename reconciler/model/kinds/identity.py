"""A typed view of an identity (docs/platform/fields.md#identity), for rules."""

from __future__ import annotations

from reconciler.model.kinds.base import Envelope, View

PROVIDERS = ("aws", "gcp", "azure", "ngs")
"""The providers of cloud access; an identity has a field for each."""


class Access(View, frozen=True):
    """Access to a cloud through the account of ``cloud_account_link``."""

    cloud_account_link: str = ""


class NetworkResource(View, frozen=True):
    """A host in a private network, with its name for workloads."""

    name: str = ""


class Identity(Envelope, frozen=True):
    """An identity with its cloud access; None if it has none with that provider."""

    aws: Access | None = None
    gcp: Access | None = None
    azure: Access | None = None
    ngs: Access | None = None
    network_resources: tuple[NetworkResource, ...] = ()
    native_network_resources: tuple[NetworkResource, ...] = ()

    def accesses(self) -> list[tuple[str, Access]]:
        """Each existing access, with its provider."""
        pairs = zip(PROVIDERS, (self.aws, self.gcp, self.azure, self.ngs), strict=True)
        return [(provider, access) for provider, access in pairs if access is not None]
