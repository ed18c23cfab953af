"""Object stores of cloud providers, mounted as volumes: their identity, and whether they can be reached."""

from __future__ import annotations

from collections.abc import Iterator

from reconciler.manifests.rules.registry import register_rule, register_warning
from reconciler.manifests.rules.text import quote_text
from reconciler.model.finding import Flaw, Pointer
from reconciler.model.key import Kind
from reconciler.model.kinds.workload import External, Workload
from reconciler.model.platform import STORE_URIS

HOSTS = {
    "s3": ("amazonaws.com", "*.s3.REGION.amazonaws.com"),
    "gs": ("storage.googleapis.com", "storage.googleapis.com"),
    "azureblob": ("blob.core.windows.net", "*.blob.core.windows.net"),
    "azurefs": ("file.core.windows.net", "*.file.core.windows.net"),
}
"""Scheme of a mount → the domain of the provider's object storage, and a host name that opens the firewall to it."""


@register_rule("object-store-identity", "docs/platform/workload.md#object-stores", Kind.WORKLOAD)
def check_store_identity(workload: Workload) -> Iterator[Flaw]:
    """A workload that mounts an object store has an identity.

    The platform reads the store with the cloud access of the workload's identity; mounts do not use keys inside the
    container.
    """
    if workload.spec.identity_link:
        return
    for at, uri in _list_store_mounts(workload):
        message = f"{quote_text(uri)} is read with the workload's identity, and the workload has none"
        hint = "add `identityLink`, to an identity with cloud access for this provider"
        yield Flaw(at, message, hint, also=(("spec", "identityLink"),))


@register_warning("object-store-outbound", "docs/platform/workload.md#object-stores", Kind.WORKLOAD)
def check_outbound_access(workload: Workload) -> Iterator[Flaw]:
    """A workload that mounts an object store may reach all addresses, or the provider's storage hosts.

    The replica reads the mount over the network, and the firewall blocks every address that it does not list.
    """
    reached: dict[str, bool] = {}
    for at, uri in _list_store_mounts(workload):
        scheme = uri.partition("://")[0]
        if scheme not in reached:
            reached[scheme] = _allows_storage_hosts(workload.spec.firewall_config.external, scheme)
        if not reached[scheme]:
            message = f"the firewall blocks the storage hosts of {quote_text(uri)}"
            hint = f"add {HOSTS[scheme][1]} to `firewallConfig.external.outboundAllowHostname`"
            yield Flaw(at, message, hint, also=(("spec", "firewallConfig"),))


def _list_store_mounts(workload: Workload) -> Iterator[tuple[Pointer, str]]:
    """Each mount of an object store, with the pointer to its address."""
    for index, container in enumerate(workload.spec.containers):
        for step, volume in enumerate(container.volumes):
            if volume.uri.startswith(STORE_URIS):
                yield ("spec", "containers", index, "volumes", step, "uri"), volume.uri


def _allows_storage_hosts(external: External, scheme: str) -> bool:
    """Whether the storage hosts of ``scheme`` may be reached."""
    if any(text.endswith("/0") for text in external.outbound_allow_cidr):
        return True
    return any(_covers_storage_hosts(host.lower(), scheme) for host in external.outbound_allow_hostname)


def _covers_storage_hosts(host: str, scheme: str) -> bool:
    """Whether the firewall's entry ``host`` covers the storage hosts of ``scheme``, or some of them."""
    domain = HOSTS[scheme][0]
    name = host.removeprefix("*.")
    if host != name and f".{domain}".endswith(f".{name}"):
        return True
    if not f".{name}".endswith(f".{domain}"):
        return False
    return scheme != "s3" or host != name or any(label.startswith("s3") for label in name.split("."))
