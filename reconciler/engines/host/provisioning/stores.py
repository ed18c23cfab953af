"""Object stores as volumes: the options of rclone, which mounts them (docs/platform/workload.md#object-stores)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

import msgspec

from reconciler.engines.host.runtimes.protocol import StoreMount
from reconciler.engines.protocol import SecretReader
from reconciler.engines.workload.mounts import normal_path
from reconciler.engines.workload.object_stores import CloudAccess, missing_access, provider_of
from reconciler.engines.workload.secrets import make_secret_error
from reconciler.model.key import Key, Kind
from reconciler.model.kinds.secret import SecretValue
from reconciler.model.kinds.workload import Container, Volume
from reconciler.model.platform import STORE_URIS

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


def store_mounts(
    container: Container, access: Mapping[str, CloudAccess], reveal: SecretReader
) -> tuple[StoreMount, ...]:
    """The object stores of ``container`` that can be mounted. Raises EngineError if a secret cannot be used."""
    volumes = [volume for volume in container.volumes if volume.uri.startswith(STORE_URIS)]
    usable = [volume for volume in volumes if not missing_access(volume, access)]
    return tuple(_make_mount(volume, access[provider_of(volume)], reveal) for volume in usable)


def _make_mount(volume: Volume, access: CloudAccess, reveal: SecretReader) -> StoreMount:
    scheme, _, remote_path = volume.uri.partition("://")
    key = Key(Kind.SECRET, "", access.secret)
    secret = reveal(key)
    form, make = _FORMS[scheme]
    if secret.type != form:
        raise make_secret_error(f"{key} is of type {secret.type}; {volume.uri} needs keys of type {form}")
    options, principal = make(key, secret, remote_path)
    named = {"endpoint": access.endpoint, "region": access.region if scheme == "s3" else ""}
    options |= {name: value for name, value in named.items() if value}
    if scheme == "s3" and not access.endpoint:
        options["provider"] = "AWS"
    path = remote_path.partition("/")[2] if scheme == "azureblob" else remote_path
    return StoreMount(volume.uri, normal_path(volume.path), path, options, principal)


def _make_s3_options(key: Key, secret: SecretValue, _: str) -> tuple[dict[str, str], str]:
    content = _read_fields(key, secret)
    keys = {
        "access_key_id": _get_text(key, content, "accessKey"),
        "secret_access_key": _get_text(key, content, "secretKey"),
    }
    return {"type": "s3", "provider": "Other", "env_auth": "false", **keys}, ""


def _make_gs_options(key: Key, secret: SecretValue, _: str) -> tuple[dict[str, str], str]:
    options = {"type": "google cloud storage", "bucket_policy_only": "true"}
    # Go reads names in any case, and rclone logs in wherever the key says: only what is needed gets there.
    written = {name.lower(): text for name, text in _read_fields(key, secret).items()}
    used = {name: written[name] for name in _GOOGLE_FIELDS if name in written}
    if not _is_of_google(used.get("token_uri", "")):
        raise make_secret_error(f"{key} has a token_uri that is no address of Google")
    return {**options, "service_account_credentials": msgspec.json.encode(used).decode()}, ""


def _is_of_google(uri: object) -> bool:
    """Whether ``uri`` is an address of Google's token service; "" stands for the usual one."""
    try:
        parts = urlsplit(uri) if isinstance(uri, str) else urlsplit("/")
        return uri == "" or (parts.scheme == "https" and parts.netloc in _GOOGLE_HOSTS)
    except ValueError:
        return False


def _make_azureblob_options(key: Key, secret: SecretValue, remote_path: str) -> tuple[dict[str, str], str]:
    content = _read_fields(key, secret)
    names = {"appId": "clientId", "password": "clientSecret", "tenant": "tenantId"}
    principal = {name: _get_text(key, content, field) for name, field in names.items()}
    return {"type": "azureblob", "account": remote_path.partition("/")[0]}, msgspec.json.encode(principal).decode()


_FORMS: Mapping[str, tuple[str, Callable[[Key, SecretValue, str], tuple[dict[str, str], str]]]] = {
    "s3": ("aws", _make_s3_options),
    "gs": ("gcp", _make_gs_options),
    "azureblob": ("azure-sdk", _make_azureblob_options),
}
"""For each scheme, the type of the secret with its keys, and what makes the options of rclone from it."""


def _read_fields(key: Key, secret: SecretValue) -> Mapping[str, Any]:
    content: Any = secret.content
    if isinstance(content, str):
        try:
            content = msgspec.json.decode(content)
        except msgspec.DecodeError:
            content = None
    if not isinstance(content, dict):
        raise make_secret_error(f"{key} has no keys: it is no JSON object")
    return content


def _get_text(key: Key, content: Mapping[str, Any], name: str) -> str:
    value = content.get(name)
    if not isinstance(value, str) or not value or not value.isprintable():
        raise make_secret_error(f"{key} has no {name}")
    return value
