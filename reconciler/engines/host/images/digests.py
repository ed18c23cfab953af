"""The digests of the tags of a version, so that every replica of the version runs the same image."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from pathlib import Path

import msgspec

from reconciler.engines.host.disk.atomic import write_atomic, write_error
from reconciler.listing import list_paths
from reconciler.logs import log
from reconciler.model.key import Key, Kind


class ImagePin(msgspec.Struct, frozen=True):
    """The image of a container: as written, in full, and as the reference with digest that runs.

    ``pulled``: the digest was on this host, so it is never replaced.
    """

    image: str
    reference: str
    pinned: str
    pulled: bool = False


class VersionPins(msgspec.Struct, frozen=True):
    """The images of one version by container; ``resolved`` is when the last of them was, in seconds since the epoch."""

    resolved: float
    containers: dict[str, ImagePin]


class DigestStore:
    """The pins of all versions at a location, one file each below ``root``. Methods that write raise EngineError."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._pins: dict[Key, dict[int, VersionPins]] = {}
        for path in list_paths(root, "*/*/*.json"):
            self._load(path)

    def get(self, key: Key, version: int) -> VersionPins | None:
        """The pins of a version, None before any is resolved."""
        return self._pins.get(key, {}).get(version)

    def pin(self, key: Key, version: int, pins: Mapping[str, ImagePin], now: float) -> None:
        """Record ``pins`` by container, in addition to those of other containers; they survive a power cut."""
        version_pins = self.get(key, version)
        updated = VersionPins(now, {**(version_pins.containers if version_pins is not None else {}), **pins})
        if version_pins is not None and version_pins.containers == updated.containers:
            return
        path = self._path(key, version)
        write_atomic(path, msgspec.json.encode(updated), 0o600)
        _flush_paths(path, path.parent, path.parent.parent)
        self._pins.setdefault(key, {})[version] = updated

    def unpin(self, key: Key, version: int, container: str, pin: ImagePin) -> None:
        """Forget ``pin`` of a container, if that is its pin: its digest was never pulled and is gone."""
        pins = self.get(key, version)
        if pins is None or pins.containers.get(container) != pin:
            return
        rest = {name: pin for name, pin in pins.containers.items() if name != container}
        path = self._path(key, version)
        write_atomic(path, msgspec.json.encode(VersionPins(pins.resolved, rest)), 0o600)
        self._pins[key][version] = VersionPins(pins.resolved, rest)

    def forget(self, key: Key, remaining: Collection[int] = ()) -> None:
        """Forget the versions of a workload that are not ``remaining``."""
        for version in self._pins.get(key, {}).keys() - set(remaining):
            path = self._path(key, version)
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                raise write_error(f"{path} cannot be removed", error) from None
            del self._pins[key][version]
        if not self._pins.get(key):
            self._pins.pop(key, None)

    def keys(self) -> set[Key]:
        """The workloads that have pins."""
        return set(self._pins)

    def references(self) -> set[str]:
        """The references with digests of all pins."""
        versions = (version for versions in self._pins.values() for version in versions.values())
        return {pin.pinned for version in versions for pin in version.containers.values()}

    def _path(self, key: Key, version: int) -> Path:
        return self._root / key.gvc / key.name / f"{version}.json"

    def _load(self, path: Path) -> None:
        try:
            version = int(path.stem)
            pins = msgspec.json.decode(path.read_bytes(), type=VersionPins)
        except FileNotFoundError:
            # A command reads the pins while the daemon removes a version.
            return
        except (OSError, ValueError, msgspec.MsgspecError):
            log().warning("images", message=f"{path} is damaged: the tags of this version are resolved again")
            return
        key = Key(Kind.WORKLOAD, path.parent.parent.name, path.parent.name)
        self._pins.setdefault(key, {})[version] = pins


def _flush_paths(*paths: Path) -> None:
    """Write files and directories through to the disk. Raises EngineError."""
    for path in paths:
        try:
            file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fsync(file)
            finally:
                os.close(file)
        except OSError as error:
            raise write_error(f"{path} cannot be written", error) from None
