"""The object stores that a workload mounts, and whose keys read them (docs/platform/workload.md#object-stores).

The cloud account of the workload's identity names the keys: the settings bind it to a secret, and that of Azure names
one itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import msgspec

from reconciler.model.key import Key, Kind
from reconciler.model.kinds.cloudaccount import CloudAccount
from reconciler.model.kinds.identity import Identity
from reconciler.model.kinds.workload import Specification, Volume
from reconciler.model.platform import FILE_SHARE_URI, STORE_PROVIDERS, STORE_URIS
from reconciler.settings import CloudAccountSettings

ReadBody = Callable[[Key], bytes | None]
"""The body of a recorded resource in normal form; None if it is not recorded."""


class CloudAccess(msgspec.Struct, frozen=True):
    """The cloud account of an identity, and the name of the secret with its keys; "" if nothing names one."""

    account: str
    secret: str = ""
    endpoint: str = ""
    region: str = ""


def cloud_access(
    spec: Specification, gvc: str, read: ReadBody, accounts: Mapping[str, CloudAccountSettings]
) -> dict[str, CloudAccess]:
    """The access of the identity of ``spec`` by provider, for the object stores that its containers mount."""
    providers = {provider_of(volume) for volume in _list_store_volumes(spec)}
    body = (
        read(Key(Kind.IDENTITY, gvc, _get_link_name(spec.identity_link))) if providers and spec.identity_link else None
    )
    identity = msgspec.json.decode(body, type=Identity) if body is not None else Identity()
    provider_access = {}
    for provider, access in identity.accesses():
        if provider in providers:
            provider_access[provider] = _find_cloud_access(_get_link_name(access.cloud_account_link), read, accounts)
    return provider_access


def mounts_store(spec: Specification) -> bool:
    """Whether a container mounts an object store."""
    return any(True for _ in _list_store_volumes(spec))


def store_secrets(access: Mapping[str, CloudAccess]) -> tuple[Key, ...]:
    """The secrets with the keys of object stores."""
    return tuple(
        Key(Kind.SECRET, "", cloud_access.secret) for _, cloud_access in sorted(access.items()) if cloud_access.secret
    )


def unmounted_stores(spec: Specification, access: Mapping[str, CloudAccess]) -> Iterator[str]:
    """A sentence for each object store without keys."""
    for volume in _list_store_volumes(spec):
        if not volume.uri.startswith(FILE_SHARE_URI) and (why := missing_access(volume, access)):
            yield f"{volume.uri} is not mounted at {volume.path}: {why}."


def _find_cloud_access(account: str, read: ReadBody, accounts: Mapping[str, CloudAccountSettings]) -> CloudAccess:
    bound = accounts.get(account, CloudAccountSettings())
    body = read(Key(Kind.CLOUDACCOUNT, "", account))
    own = _get_link_name(msgspec.json.decode(body, type=CloudAccount).data.secret_link) if body is not None else ""
    return CloudAccess(account, bound.secret or own, bound.endpoint, bound.region)


def missing_access(volume: Volume, access: Mapping[str, CloudAccess]) -> str:
    """Why a store cannot be mounted, whatever an engine can do; "" if it can."""
    cloud_access = access.get(provider_of(volume))
    if volume.uri.startswith(FILE_SHARE_URI):
        return "file shares are not supported"
    if cloud_access is None:
        return f"the identity has no access to a cloud account of {provider_of(volume)}"
    if not cloud_access.secret:
        account = cloud_access.account
        return f"nothing names the keys of cloudaccount/{account}; set cloudAccounts.{account}.secret"
    return ""


def _list_store_volumes(spec: Specification) -> Iterator[Volume]:
    return (
        volume for container in spec.containers for volume in container.volumes if volume.uri.startswith(STORE_URIS)
    )


def provider_of(volume: Volume) -> str:
    """The provider of the cloud account that an object store belongs to."""
    return STORE_PROVIDERS[volume.uri.partition("://")[0]]


def _get_link_name(link: str) -> str:
    return link.rpartition("/")[2]
