"""Object stores as volumes: whose keys read them, and what a program that mounts them is given.

See docs/platform/workload.md#object-stores. The cloud account of the workload's identity names the keys: the settings
bind it to a secret, and that of Azure names one itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

import msgspec

from reconciler.engines.host.provisioning.mounts import normal_path
from reconciler.engines.host.provisioning.secrets import unusable
from reconciler.engines.host.runtimes.protocol import StoreMount
from reconciler.engines.protocol import SecretReader
from reconciler.model.key import Key, Kind
from reconciler.model.kinds.cloudaccount import CloudAccount
from reconciler.model.kinds.identity import Identity
from reconciler.model.kinds.secret import SecretValue
from reconciler.model.kinds.workload import Container, Specification, Volume
from reconciler.model.platform import FILE_SHARE_URI, STORE_PROVIDERS, STORE_URIS
from reconciler.settings import CloudAccountSettings

ReadBody = Callable[[Key], bytes | None]
"""The body of a recorded resource in normal form; None if it is not recorded."""


_GOOGLE_FIELDS = (
    "type",
    "project_id",
    "private_key_id",
    "private_key",
    "client_email",
    "client_id",
    "token_uri",
)
_GOOGLE_HOSTS = frozenset({"oauth2.googleapis.com", "accounts.google.com", "www.googleapis.com"})


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
    providers = {_provider(volume) for volume in _stores(spec)}
    body = read(Key(Kind.IDENTITY, gvc, _name(spec.identity_link))) if providers and spec.identity_link else None
    identity = msgspec.json.decode(body, type=Identity) if body is not None else Identity()
    found = {}
    for provider, access in identity.accesses():
        if provider in providers:
            found[provider] = _access(_name(access.cloud_account_link), read, accounts)
    return found


def store_secrets(access: Mapping[str, CloudAccess]) -> tuple[Key, ...]:
    """The secrets with the keys of object stores."""
    return tuple(Key(Kind.SECRET, "", each.secret) for _, each in sorted(access.items()) if each.secret)


def store_mounts(
    container: Container, access: Mapping[str, CloudAccess], reveal: SecretReader
) -> tuple[StoreMount, ...]:
    """The object stores of ``container`` that can be mounted. Raises EngineError if a secret cannot be used."""
    volumes = [volume for volume in container.volumes if volume.uri.startswith(STORE_URIS)]
    return tuple(_mount(each, access[_provider(each)], reveal) for each in volumes if not _missing(each, access))


def unmounted_stores(spec: Specification, access: Mapping[str, CloudAccess]) -> Iterator[str]:
    """A sentence for each object store without keys."""
    for volume in _stores(spec):
        if not volume.uri.startswith(FILE_SHARE_URI) and (why := _missing(volume, access)):
            yield f"{volume.uri} is not mounted at {volume.path}: {why}."


def _access(account: str, read: ReadBody, accounts: Mapping[str, CloudAccountSettings]) -> CloudAccess:
    bound = accounts.get(account, CloudAccountSettings())
    body = read(Key(Kind.CLOUDACCOUNT, "", account))
    own = _name(msgspec.json.decode(body, type=CloudAccount).data.secret_link) if body is not None else ""
    return CloudAccess(account, bound.secret or own, bound.endpoint, bound.region)


def _missing(volume: Volume, access: Mapping[str, CloudAccess]) -> str:
    """Why a store cannot be mounted, whatever this host has; "" if it can."""
    found = access.get(_provider(volume))
    if volume.uri.startswith(FILE_SHARE_URI):
        return "file shares are not supported"
    if found is None:
        return f"the identity has no access to a cloud account of {_provider(volume)}"
    if not found.secret:
        return f"nothing names the keys of cloudaccount/{found.account}; set cloudAccounts.{found.account}.secret"
    return ""


def _mount(volume: Volume, access: CloudAccess, reveal: SecretReader) -> StoreMount:
    scheme, _, place = volume.uri.partition("://")
    key = Key(Kind.SECRET, "", access.secret)
    secret = reveal(key)
    form, make = _FORMS[scheme]
    if secret.type != form:
        raise unusable(f"{key} is of type {secret.type}; {volume.uri} needs keys of type {form}")
    options, principal = make(key, secret, place)
    named = {"endpoint": access.endpoint, "region": access.region if scheme == "s3" else ""}
    options |= {name: value for name, value in named.items() if value}
    if scheme == "s3" and not access.endpoint:
        options["provider"] = "AWS"
    path = place.partition("/")[2] if scheme == "azureblob" else place
    return StoreMount(volume.uri, normal_path(volume.path), path, options, principal)


def _s3(key: Key, secret: SecretValue, _: str) -> tuple[dict[str, str], str]:
    content = _fields(key, secret)
    keys = {"access_key_id": _text(key, content, "accessKey"), "secret_access_key": _text(key, content, "secretKey")}
    return {"type": "s3", "provider": "Other", "env_auth": "false", **keys}, ""


def _gs(key: Key, secret: SecretValue, _: str) -> tuple[dict[str, str], str]:
    options = {"type": "google cloud storage", "bucket_policy_only": "true"}
    # Go reads names in any case, and rclone logs in wherever the key says: only what is needed gets there.
    written = {name.lower(): text for name, text in _fields(key, secret).items()}
    used = {name: written[name] for name in _GOOGLE_FIELDS if name in written}
    if not _is_of_google(used.get("token_uri", "")):
        raise unusable(f"{key} has a token_uri that is no address of Google")
    return {**options, "service_account_credentials": msgspec.json.encode(used).decode()}, ""


def _is_of_google(uri: object) -> bool:
    """Whether ``uri`` is an address of Google's token service; "" stands for the usual one."""
    try:
        parts = urlsplit(uri) if isinstance(uri, str) else urlsplit("/")
        return uri == "" or (parts.scheme == "https" and parts.netloc in _GOOGLE_HOSTS)
    except ValueError:
        return False


def _azureblob(key: Key, secret: SecretValue, place: str) -> tuple[dict[str, str], str]:
    content = _fields(key, secret)
    names = {"appId": "clientId", "password": "clientSecret", "tenant": "tenantId"}
    principal = {name: _text(key, content, field) for name, field in names.items()}
    return {"type": "azureblob", "account": place.partition("/")[0]}, msgspec.json.encode(principal).decode()


_FORMS: Mapping[str, tuple[str, Callable[[Key, SecretValue, str], tuple[dict[str, str], str]]]] = {
    "s3": ("aws", _s3),
    "gs": ("gcp", _gs),
    "azureblob": ("azure-sdk", _azureblob),
}
"""For each scheme, the type of the secret with its keys, and what makes the options of rclone from it."""


def _fields(key: Key, secret: SecretValue) -> Mapping[str, Any]:
    content: Any = secret.content
    if isinstance(content, str):
        try:
            content = msgspec.json.decode(content)
        except msgspec.DecodeError:
            content = None
    if not isinstance(content, dict):
        raise unusable(f"{key} has no keys: it is no JSON object")
    return content


def _text(key: Key, content: Mapping[str, Any], name: str) -> str:
    value = content.get(name)
    if not isinstance(value, str) or not value or not value.isprintable():
        raise unusable(f"{key} has no {name}")
    return value


def _stores(spec: Specification) -> Iterator[Volume]:
    return (volume for each in spec.containers for volume in each.volumes if volume.uri.startswith(STORE_URIS))


def _provider(volume: Volume) -> str:
    return STORE_PROVIDERS[volume.uri.partition("://")[0]]


def _name(link: str) -> str:
    return link.rpartition("/")[2]
