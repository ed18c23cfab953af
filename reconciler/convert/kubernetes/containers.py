"""Converts one container: image, command, resources, and the parts that the other modules convert."""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

from reconciler.convert.drafts import Body, without_empty
from reconciler.convert.kubernetes.env import Readings, variables
from reconciler.convert.kubernetes.mounts import Volumes
from reconciler.convert.kubernetes.ports import Port, Ports, names_of
from reconciler.convert.kubernetes.probes import lifecycle, probe
from reconciler.convert.mounts import Mount
from reconciler.convert.names import container_name
from reconciler.convert.quantities import cpu, memory, quantity
from reconciler.convert.tracked_value import TrackedValue
from reconciler.model.image_names import with_registry


class Pod(NamedTuple):
    """Shared by the containers of one pod; ``ports`` is None for cron workloads, which serve nothing."""

    volumes: Volumes
    readings: Readings
    ports: Ports | None
    metrics: Body


class Container(NamedTuple):
    """A container in the format of the platform, with its ports and mounts as values."""

    body: Body
    ports: list[Port]
    mounts: list[Mount]


def container(part: TrackedValue, pod: Pod, taken: set[str]) -> Container:
    """Convert the container ``part``; add its name to ``taken``, the names of the former ones."""
    command = [each.text() for each in part["command"].items()]
    ports = pod.ports.of(part) if pod.ports else []
    mounts = pod.volumes.mounts(part)
    body: Body = {
        "name": _name(part["name"], taken),
        "image": with_registry(part["image"].required()),
        "workingDir": part["workingDir"].text(),
        "command": command[0] if command else "",
        "args": [*command[1:], *part["args"].texts()],
        **_resources(part["resources"]),
        "ports": [{"number": port.number, "protocol": port.protocol} for port in ports],
        "env": variables(part, pod.readings),
        "volumes": [{"uri": mount.uri, "path": mount.path} for mount in mounts],
        "metrics": pod.metrics,
    }
    if pod.ports:
        names = names_of(part)
        body["readinessProbe"] = probe(part["readinessProbe"], names)
        body["livenessProbe"] = probe(part["livenessProbe"], names)
    body["lifecycle"] = lifecycle(part["lifecycle"])
    return Container(without_empty(body), ports, mounts)


def _name(part: TrackedValue, taken: set[str]) -> str:
    wanted = part.required()
    name = container_name(wanted) if wanted else ""
    if name in taken:
        part.add_note("convert-malformed", f"two containers have the name {wanted}")
    elif name != wanted:
        part.add_note("convert-name", f"the container {wanted} becomes {name}")
    taken.add(name)
    return name


def _resources(part: TrackedValue) -> Body:
    """Limits, else requests; where neither is set, the platform's default applies, with a note."""
    found: Body = {}
    for field, write in (("cpu", cpu), ("memory", memory)):
        amount = _amount(part, field)
        if amount:
            found[field] = write(amount)
    if missing := [field for field in ("cpu", "memory") if field not in found]:
        part.add_note(
            "convert-default",
            f"no limit for {' and '.join(missing)} is set, so the default applies",
            "defaults are 50m and 128Mi; write what the container needs",
        )
    return found


def _amount(part: TrackedValue, field: str) -> Fraction | None:
    asked = [part[form][field] for form in ("limits", "requests") if part[form][field]]
    amounts = [quantity(each.amount()) for each in asked]
    for each, amount in zip(asked, amounts, strict=True):
        if amount is None:
            each.add_note("convert-malformed", f"the {field} is not a quantity such as 500m or 256Mi")
    return next(iter(amounts), None)


def cpu_share(part: TrackedValue) -> Fraction:
    """The requested part of the cpu that ``container`` writes; 1 where it is the same or not set."""
    requested, limited = (quantity(part["resources"][form]["cpu"].amount()) for form in ("requests", "limits"))
    return requested / limited if requested and limited else Fraction(1)
