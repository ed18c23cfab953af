"""Manifests of images: the accepted types, and the platforms that an index lists."""

from __future__ import annotations

import os
from collections.abc import Sequence

import msgspec

from reconciler.engines.workload.image_reference import ImageError
from reconciler.reasons import Reason

INDEX_TYPES = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
)
"""Media types of indexes: one manifest for each platform."""
MANIFEST_TYPES = (
    *INDEX_TYPES,
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
"""Media types of everything that can be pulled."""
MAX_MANIFEST_BYTES = 4 << 20
"""The largest size in bytes of a manifest, as registries have it."""

_MACHINES = {
    "x86_64": "amd64",
    "aarch64": "arm64",
    "armv7l": "arm",
    "armv6l": "arm",
    "i686": "386",
    "loongarch64": "loong64",
}
"""Names of processors in the kernel that differ from those in images."""
_SHOWN = 8
"""The most platforms that an error lists."""


class Platform(msgspec.Struct, frozen=True, order=True):
    """The platform of an image: ``linux`` and ``amd64``."""

    os: str = ""
    architecture: str = ""

    def __str__(self) -> str:
        return f"{self.os[:40]}/{self.architecture[:40]}"


class ImageManifest(msgspec.Struct, frozen=True):
    """The target of a tag: a digest, and whether that is an index of manifests for several platforms."""

    digest: str
    is_index: bool = False


class _Entry(msgspec.Struct, frozen=True):
    platform: Platform | None = None


class _Index(msgspec.Struct, frozen=True):
    manifests: tuple[_Entry, ...] = ()


def host_platform() -> Platform:
    """The platform of this host."""
    machine = os.uname().machine
    return Platform("linux", _MACHINES.get(machine, machine))


def parse_index(body: bytes) -> tuple[Platform, ...]:
    """The platforms in an index, sorted; attestations have none. Raises ImageError."""
    try:
        entries = msgspec.json.decode(body, type=_Index).manifests
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        raise ImageError("its registry sends an index that cannot be read") from None
    platforms = {entry.platform for entry in entries if entry.platform is not None}
    return tuple(sorted(platform for platform in platforms if platform.os not in ("", "unknown")))


def check_platform(image: str, available: Sequence[Platform], host: Platform) -> None:
    """Raise ImageError, reason ImagePlatformMismatch, unless ``image`` is available for ``host``."""
    if host in available:
        return
    more = "" if len(available) <= _SHOWN else f" and {len(available) - _SHOWN} others"
    names = ", ".join(map(str, available[:_SHOWN])) + more
    raise ImageError(
        f"the image {image} is made for {names or 'no platform'}, and this host is {host}",
        reason=Reason.IMAGE_PLATFORM_MISMATCH,
        retry=False,
    )
