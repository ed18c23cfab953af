"""The marker in the environment of every container process: its container and version."""

from __future__ import annotations

import os
import re
from pathlib import Path

import msgspec

from reconciler.engines.host.runtimes.protocol import ContainerId, ContainerStart
from reconciler.model.key import Key, Kind

CONTAINER = "RECONCILER_CONTAINER"
"""LOCATION/GVC/WORKLOAD/REPLICA/CONTAINER."""
REPLICA = "RECONCILER_REPLICA"
"""VERSION/INDEX/STAMP."""
PORTS = "RECONCILER_PORTS"
"""DECLARED:ASSIGNED for each port, separated by commas."""
ROOT = "RECONCILER_ROOT"
"""The directory of the location, since a second daemon on this host may have a location of the same name."""

# A program may write anything into its environment, and these names become paths.
_NAME = re.compile(r"[A-Za-z0-9][-._A-Za-z0-9]*")
_PORT_PAIR = re.compile(r"([0-9]{1,5}):([0-9]{1,5})(?=,|$)")
_COUNT = re.compile(r"-?[0-9]{1,9}").fullmatch
_CONTAINER = CONTAINER.encode() + b"="
_REPLICA = REPLICA.encode() + b"="
_PORTS = PORTS.encode() + b"="
_ROOT = ROOT.encode() + b"="


class Marker(msgspec.Struct, frozen=True):
    """The parsed marker of a process."""

    place: ContainerId
    version: int
    index: int
    config_hash: str
    ports: dict[int, int]


class ProcessLabels(msgspec.Struct, frozen=True):
    """Writes and reads the markers of one location."""

    root: Path
    location: str

    def variables(self, launch: ContainerStart) -> dict[str, str]:
        """The marker variables of a container."""
        return {
            CONTAINER: self.text(launch.place),
            REPLICA: f"{launch.version}/{launch.index}/{launch.config_hash}",
            PORTS: ",".join(f"{declared}:{port}" for declared, port in sorted(launch.ports.items())),
            ROOT: str(self.root),
        }

    def text(self, container_id: ContainerId) -> str:
        """The first part of the marker of a container."""
        return f"{self.prefix(container_id.key, container_id.replica)}{container_id.container}"

    def prefix(self, key: Key, replica: str) -> str:
        """The prefix of the markers of all containers of a replica."""
        return f"{self.location}/{key.gvc}/{key.name}/{replica}/"

    def text_in(self, environment: bytes) -> str:
        """The first part of the marker in an environment; "" without one of this location and root."""
        text = _get_variable_value(environment, _CONTAINER)
        if not text.startswith(f"{self.location}/") or _get_variable_value(environment, _ROOT) != str(self.root):
            return ""
        return text

    def marker_in(self, environment: bytes) -> Marker | None:
        """The whole marker in an environment; None without one of this location and root."""
        parts = self.text_in(environment).split("/")
        version, _, rest = _get_variable_value(environment, _REPLICA).partition("/")
        index, _, config_hash = rest.partition("/")
        if len(parts) != 5 or not all(map(_NAME.fullmatch, parts)) or not (_COUNT(version) and _COUNT(index)):
            return None
        _, gvc, workload, replica, container = parts
        container_id = ContainerId(Key(Kind.WORKLOAD, gvc, workload), replica, container)
        ports = dict(map(_port_pair, _PORT_PAIR.findall(_get_variable_value(environment, _PORTS))))
        return Marker(container_id, int(version), int(index), config_hash, ports)


def _port_pair(pair: tuple[str, str]) -> tuple[int, int]:
    return int(pair[0]), int(pair[1])


def _get_variable_value(environment: bytes, name: bytes) -> str:
    if environment.startswith(name):
        begin = len(name)
    else:
        begin = environment.find(b"\0" + name) + 1 + len(name)
        if begin == len(name):
            return ""
    end = environment.find(b"\0", begin)
    return os.fsdecode(environment[begin : end if end >= 0 else None])
