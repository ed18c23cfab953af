"""Converts one container: image, command, resources, and the parts that the other modules convert."""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

from reconciler.convert.drafts import Body, without_empty
from reconciler.convert.kubernetes.env import Readings, convert_variables
from reconciler.convert.kubernetes.mounts import Volumes
from reconciler.convert.kubernetes.ports import ContainerPort, Ports, names_of
from reconciler.convert.kubernetes.probes import convert_lifecycle, convert_probe
from reconciler.convert.mounts import ConvertedMount
from reconciler.convert.names import container_name
from reconciler.convert.quantities import format_cpu, format_memory, parse_quantity
from reconciler.convert.tracked_value import TrackedValue
from reconciler.model.image_names import with_registry


class Pod(NamedTuple):
    """Shared by the containers of one pod; ``ports`` is None for cron workloads, which serve nothing."""

    volumes: Volumes
    readings: Readings
    ports: Ports | None
    metrics: Body


class ConvertedContainer(NamedTuple):
    """A container in the format of the platform, with its ports and mounts as values."""

    body: Body
    ports: list[ContainerPort]
    mounts: list[ConvertedMount]


def convert_container(part: TrackedValue, pod: Pod, taken: set[str]) -> ConvertedContainer:
    """Convert the container ``part``; add its name to ``taken``, the names of the former ones."""
    command = [tracked_value.text() for tracked_value in part["command"].items()]
    ports = pod.ports.of(part) if pod.ports else []
    mounts = pod.volumes.mounts(part)
    body: Body = {
        "name": _choose_name(part["name"], taken),
        "image": with_registry(part["image"].require_text()),
        "workingDir": part["workingDir"].text(),
        "command": command[0] if command else "",
        "args": [*command[1:], *part["args"].texts()],
        **_convert_resources(part["resources"]),
        "ports": [{"number": port.number, "protocol": port.protocol} for port in ports],
        "env": convert_variables(part, pod.readings),
        "volumes": [{"uri": mount.uri, "path": mount.path} for mount in mounts],
        "metrics": pod.metrics,
    }
    if pod.ports:
        names = names_of(part)
        body["readinessProbe"] = convert_probe(part["readinessProbe"], names)
        body["livenessProbe"] = convert_probe(part["livenessProbe"], names)
    body["lifecycle"] = convert_lifecycle(part["lifecycle"])
    return ConvertedContainer(without_empty(body), ports, mounts)


def _choose_name(part: TrackedValue, taken: set[str]) -> str:
    original = part.require_text()
    name = container_name(original) if original else ""
    if name in taken:
        part.add_note("convert-malformed", f"two containers have the name {original}")
    elif name != original:
        part.add_note("convert-name", f"the container {original} becomes {name}")
    taken.add(name)
    return name


def _convert_resources(part: TrackedValue) -> Body:
    """Limits, else requests; where neither is set, the platform's default applies, with a note."""
    amounts: Body = {}
    for field, write in (("cpu", format_cpu), ("memory", format_memory)):
        amount = _find_amount(part, field)
        if amount:
            amounts[field] = write(amount)
    if missing := [field for field in ("cpu", "memory") if field not in amounts]:
        part.add_note(
            "convert-default",
            f"no limit for {' and '.join(missing)} is set, so the default applies",
            "defaults are 50m and 128Mi; write what the container needs",
        )
    return amounts


def _find_amount(part: TrackedValue, field: str) -> Fraction | None:
    asked = [part[form][field] for form in ("limits", "requests") if part[form][field]]
    amounts = [parse_quantity(tracked_value.amount()) for tracked_value in asked]
    for entry, amount in zip(asked, amounts, strict=True):
        if amount is None:
            entry.add_note("convert-malformed", f"the {field} is not a quantity such as 500m or 256Mi")
    return next(iter(amounts), None)


def cpu_share(part: TrackedValue) -> Fraction:
    """The requested part of the cpu that ``container`` writes; 1 where it is the same or not set."""
    requested, limited = (parse_quantity(part["resources"][form]["cpu"].amount()) for form in ("requests", "limits"))
    return requested / limited if requested and limited else Fraction(1)
