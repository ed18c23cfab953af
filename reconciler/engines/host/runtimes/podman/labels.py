"""The labels of our containers: whose they are, and everything that adopts them without records."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path
from secrets import token_hex

import msgspec

from reconciler.engines.host.disk.ownership import IdRange
from reconciler.engines.host.runtimes.protocol import ContainerId, ContainerStart
from reconciler.model.key import Key, Kind

_PREFIX = "io.gitops-reconciler."
OWNER = f"{_PREFIX}owner"
"""The daemon and location; nothing without this label, or with another one's, is ever touched."""
LOCATION, GVC, WORKLOAD, REPLICA, CONTAINER, VERSION, CONFIG_HASH, INDEX, DIGEST, IMAGE, PORTS, CPU, NONCE, IDS = (
    f"{_PREFIX}{name}"
    for name in (
        "location",
        "gvc",
        "workload",
        "replica",
        "container",
        "version",
        "config-hash",
        "index",
        "digest",
        "image",
        "ports",
        "cpu",
        "nonce",
        "ids",
    )
)
"""Container is "" for a sandbox. Ports are JSON: declared to assigned. CPU is in millicores, 0 for a sandbox.

The nonce is new at every start. Ids are the first one and their number, "" without a user namespace.
"""

# Names become paths of this host, and anybody with access to the socket sets labels.
_NAME = re.compile(r"[A-Za-z0-9][-._A-Za-z0-9]{0,252}")
_COUNT = re.compile(r"-?[0-9]{1,9}")
_IDS = re.compile(r"(?:([0-9]{1,10}):([0-9]{1,10}))?")
_UNUSUAL = re.compile(r"[^A-Za-z0-9_.-]")
_NAME_LENGTH = 80


class Labelled(msgspec.Struct, frozen=True):
    """What the labels of a container mean. The place of a sandbox has the container ""; ``cpu`` is in millicores.

    ``ids`` are those of its user namespace, which is that of its sandbox; None without one.
    """

    place: ContainerId
    version: int
    config_hash: str
    index: int
    ports: dict[int, int]
    cpu: int = 0
    image: str = ""
    ids: IdRange | None = None


class PodmanLabels(msgspec.Struct, frozen=True):
    """Writes and reads the labels of one location. ``owner`` distinguishes it from all others on the same Podman."""

    owner: str
    location: str

    @property
    def network(self) -> str:
        """The name of the location's network."""
        return f"reconciler-{self.owner}"

    @property
    def interface(self) -> str:
        """The name of the bridge of the network, of at most 15 characters.

        Podman would give a free name such as podman1: the rules for the bridge of a deleted network that had it before
        would then apply to this one.
        """
        return f"rec-{self.owner[:11]}"

    @property
    def prefix(self) -> str:
        """The prefix of the names of all our containers."""
        return f"rec-{self.owner}-"

    def all_of_location(self) -> list[str]:
        """A filter for all our containers."""
        return [f"{OWNER}={self.owner}"]

    def all_of_replica(self, key: Key, replica: str) -> list[str]:
        """A filter for the containers of a replica, its sandbox included."""
        return [f"{OWNER}={self.owner}", f"{GVC}={key.gvc}", f"{WORKLOAD}={key.name}", f"{REPLICA}={replica}"]

    def name(self, container_id: ContainerId, nonce: str) -> str:
        """A name that no container of another start has, even one that Podman lost."""
        readable = _UNUSUAL.sub("_", f"{container_id.replica}-{container_id.container}".rstrip("-"))
        return f"{self.prefix}{readable[:_NAME_LENGTH]}.{nonce}"

    def container(self, launch: ContainerStart, nonce: str) -> dict[str, str]:
        """The labels of a container."""
        _, _, digest = launch.image.partition("@")
        return self._labels(launch, nonce) | {
            CONTAINER: launch.place.container,
            DIGEST: digest,
            IMAGE: launch.image,
            PORTS: _encode_ports(launch.ports),
            CPU: str(launch.cpu),
        }

    def sandbox(self, launch: ContainerStart, nonce: str) -> dict[str, str]:
        """The labels of the sandbox of the replica that ``launch`` belongs to."""
        ports = _encode_ports(launch.replica_ports)
        return self._labels(launch, nonce) | {CONTAINER: "", DIGEST: "", IMAGE: "", PORTS: ports, CPU: "0"}

    def _labels(self, launch: ContainerStart, nonce: str) -> dict[str, str]:
        container_id = launch.place
        return {
            OWNER: self.owner,
            LOCATION: self.location,
            GVC: container_id.key.gvc,
            WORKLOAD: container_id.key.name,
            REPLICA: container_id.replica,
            VERSION: str(launch.version),
            CONFIG_HASH: launch.config_hash,
            INDEX: str(launch.index),
            NONCE: nonce,
            IDS: str(launch.ids or ""),
        }

    def read(self, labels: Mapping[str, str] | None) -> Labelled | None:
        """The meaning of ``labels``; None if they are not of this location, or not as we write them."""
        container_labels = labels or {}
        if container_labels.get(OWNER) != self.owner:
            return None
        names = [container_labels.get(text, "") for text in (GVC, WORKLOAD, REPLICA)]
        container = container_labels.get(CONTAINER, "")
        version, index, cpu = (
            container_labels.get(VERSION, ""),
            container_labels.get(INDEX, ""),
            container_labels.get(CPU, "0"),
        )
        ports = _decode_ports(container_labels.get(PORTS, ""))
        if not all(map(_NAME.fullmatch, [*names, *([container] if container else [])])) or ports is None:
            return None
        ids = _IDS.fullmatch(container_labels.get(IDS, ""))
        if not all(map(_COUNT.fullmatch, (version, index, cpu))) or ids is None:
            return None
        gvc, workload, replica = names
        container_id = ContainerId(Key(Kind.WORKLOAD, gvc, workload), replica, container)
        return Labelled(
            container_id,
            int(version),
            container_labels.get(CONFIG_HASH, ""),
            int(index),
            ports,
            int(cpu),
            container_labels.get(IMAGE, ""),
            IdRange(int(ids[1]), int(ids[2])) if ids[1] else None,
        )


def labels_of(root: Path, location: str) -> PodmanLabels:
    """The labels of the location in the directory ``root``."""
    # Daemons with different directories can use the same names of locations on one Podman.
    identity = os.fsencode(root.resolve()) + b"\0" + location.encode()
    return PodmanLabels(blake2b(identity, digest_size=6).hexdigest(), location)


def new_nonce() -> str:
    """A name part that is different at every start."""
    return token_hex(4)


def label_filter(labels: list[str]) -> str:
    """A filter for containers or networks that have all of ``labels``."""
    return json.dumps({"label": labels})


def _encode_ports(ports: Mapping[int, int]) -> str:
    return json.dumps({str(declared): assigned for declared, assigned in sorted(ports.items())}, separators=(",", ":"))


def _decode_ports(text: str) -> dict[int, int] | None:
    try:
        return msgspec.json.decode(text, type=dict[int, int])
    except msgspec.DecodeError:
        return None
