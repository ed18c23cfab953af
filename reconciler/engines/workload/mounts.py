"""The content of a container's volumes and their mount paths (docs/platform/workload.md#volumes)."""

from __future__ import annotations

import posixpath
from hashlib import blake2b
from itertools import pairwise

import msgspec

from reconciler.engines.protocol import SecretReader
from reconciler.engines.workload.secrets import (
    as_json,
    parse_secret_uri,
    secret_keys,
    secret_part,
    secret_whole,
)
from reconciler.errors import EngineError
from reconciler.model.kinds.secret import TEXTS
from reconciler.model.kinds.workload import Container, Volume
from reconciler.model.platform import SCRATCH_URI, SECRET_URI, SPELLING, STORE_URIS, VOLUMESET_URI
from reconciler.reasons import Reason

PAYLOAD = "payload"

_NO_FILES = frozenset({".", ".."})
"""Dictionary keys that cannot be file names; the secret's JSON contains them all the same."""


class SecretMount(msgspec.Struct, frozen=True):
    """A secret at ``path``: a directory with these files, or (``single``) one file with the content under ``""``."""

    path: str
    files: dict[str, bytes]
    single: bool = False

    def __repr__(self) -> str:
        return f"SecretMount(path={self.path!r}, names={sorted(self.files)}, single={self.single})"


class ScratchMount(msgspec.Struct, frozen=True):
    """An empty directory at ``path``; mounts with the same ``folder`` in a replica share it."""

    path: str
    folder: str


class VolumeMount(msgspec.Struct, frozen=True):
    """The replica's volume of a volume set in its GVC, at ``path``."""

    path: str
    volumeset: str


Planned = SecretMount | ScratchMount | VolumeMount


def plan_mounts(container: Container, reveal: SecretReader, scheme: str = SPELLING) -> tuple[Planned, ...]:
    """The mounts of ``container``, in the order of its volumes, with normalized paths; object stores are left out.

    ``scheme`` is how manifests spell ``platform``. Raises EngineError if a secret cannot be used (SecretUnavailable,
    SecretUnusable) or if one volume would be inside another (MountRefused).
    """
    planned = tuple(
        _plan_mount(volume, reveal, scheme) for volume in container.volumes if not volume.uri.startswith(STORE_URIS)
    )
    paths = sorted(f"{mount.path}/" for mount in planned)
    for outer, inner in pairwise(paths):
        if inner.startswith(outer):
            message = f"{inner[:-1]} lies inside {outer[:-1]}, where another volume is mounted"
            raise EngineError(message, reason=Reason.MOUNT_REFUSED, retry=False)
    return planned


def normal_path(path: str) -> str:
    """``path`` as an absolute path without ``.``, ``..`` and repeated slashes."""
    return posixpath.normpath(f"/{path.lstrip('/')}")


def _plan_mount(volume: Volume, reveal: SecretReader, scheme: str) -> Planned:
    path = normal_path(volume.path)
    if volume.uri.startswith(SECRET_URI):
        return _build_secret_mount(volume.uri, path, reveal, scheme)
    if volume.uri.startswith(VOLUMESET_URI):
        return VolumeMount(path, volume.uri.removeprefix(VOLUMESET_URI))
    if volume.uri.startswith(SCRATCH_URI):
        return ScratchMount(path, _format_folder_name(volume.uri.removeprefix(SCRATCH_URI), path))
    raise EngineError(f"{volume.uri} is no volume that can be mounted", reason=Reason.MOUNT_REFUSED, retry=False)


def _build_secret_mount(uri: str, path: str, reveal: SecretReader, scheme: str) -> SecretMount:
    key, part = parse_secret_uri(uri)
    secret = reveal(key)
    if part:
        return SecretMount(path, {"": secret_part(key, secret, part)}, single=True)
    if secret.type == "opaque":
        single = path.count("/") > 1
        return SecretMount(path, {"" if single else PAYLOAD: secret_whole(key, secret)}, single)
    names = [] if secret.type in TEXTS else [name for name in secret_keys(secret) if name not in _NO_FILES]
    whole = {f"___{spelling}___.secret": as_json(secret) for spelling in sorted({SPELLING, scheme})}
    return SecretMount(path, {name: secret_part(key, secret, name) for name in names} | whole)


def _format_folder_name(name: str, path: str) -> str:
    """A directory name, equal for the same scratch volume at the same path (docs/platform/workload.md#volumes)."""
    return f"{name}-{blake2b(path.encode(), digest_size=4).hexdigest()}"
