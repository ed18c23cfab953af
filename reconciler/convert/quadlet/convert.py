"""Quadlets as a compose project: a service for each container, and one workload for the containers of a pod."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from reconciler.convert.budget import Budget
from reconciler.convert.compose.convert import convert_project as convert_project
from reconciler.convert.compose.long_forms import long_form
from reconciler.convert.compose.nodes import Node, NodeOrigin, collect_origins, get_plain_value, make_node
from reconciler.convert.compose.project import Addition, FileReader, Project, no_file
from reconciler.convert.compose.shell_words import read_json_words, split_words
from reconciler.convert.drafts import Converted
from reconciler.convert.names import make_valid_name
from reconciler.convert.notes import ConversionNote
from reconciler.convert.quadlet.calendar import Times, merge_times, read_times
from reconciler.convert.quadlet.fields import (
    ARGUMENTS,
    HEALTH_CHECKS,
    LISTS,
    PAIRS,
    TEXTS,
    check_unused_entries,
    origin_of,
)
from reconciler.convert.quadlet.units import Unit, UnitEntry
from reconciler.errors import OutsideFileError, UnreadableFileError
from reconciler.printable import is_name

_GVC = "default"
_SPECIFIER = re.compile("%([^%])")
_WAITS = ("After", "Requires", "Wants", "BindsTo")
_PERCENT = re.compile(r"([0-9]{1,7})(?:\.[0-9]+)?%")
_WORDING = {
    "set deploy.resources.limits": "set Memory, and --cpus in PodmanArgs",
    "expose names ports": "ExposeHostPort names ports",
    "with a port in `expose`": "with a port in ExposeHostPort",
    "set driver_opts.size, or initialCapacity of the volume set": "set initialCapacity of the volume set",
    "--location LOCATION creates it": "--gvc NAME selects another",
}
"""Words about compose files in suggestions, and those about quadlets."""


def convert_units(
    units: Sequence[Unit],
    contents: Mapping[str, bytes],
    gvc: str = "",
    open_project: Callable[[str], FileReader] = lambda _: no_file,
    budget: Budget | None = None,
) -> Converted:
    """Manifests for the containers and volumes of ``units``, in the GVC ``gvc``.

    Files that they name are read if they are in the directory of a unit. The notes name everything that is not
    converted. None has a value of the files.
    """
    directories = sorted({posixpath.dirname(unit.path) for unit in units})
    read_file = _make_file_reader([open_project(directory) for directory in directories])
    return convert_project(_Units(units, read_file, budget or Budget()).project(contents), gvc or _GVC)


def _make_file_reader(readers: Sequence[FileReader]) -> FileReader:
    """What reads a file that one of ``readers`` does."""

    def read_file(path: str) -> bytes:
        refusal = UnreadableFileError("it is not read")
        for reader in readers:
            try:
                return reader(path)
            except OutsideFileError as error:
                refusal = error
        raise refusal

    return read_file


class _Units:
    """The quadlets of a conversion, and the parts of a compose project that are made of them."""

    def __init__(self, units: Sequence[Unit], read_file: FileReader, budget: Budget) -> None:
        self._read_file = read_file
        self._timers: dict[str, Unit] = {}
        self._units: dict[str, Unit] = {}
        self._first = units[0]
        self._notes: list[ConversionNote] = []
        for unit in units:
            if self._units.setdefault(f"{unit.name}{unit.suffix}", unit) is not unit:
                self._note(
                    unit,
                    None,
                    "convert-duplicate",
                    "a unit of this name is in another directory too",
                    "convert the directories one by one",
                )
        self._budget = budget
        self._services: dict[str, Node] = {}
        self._volumes: dict[str, Node] = {}
        self._additions: dict[str, Addition] = {}
        self._groups: dict[str, list[str]] = {}
        self._names: dict[str, str] = {}
        self._taken: set[str] = set()

    def project(self, contents: Mapping[str, bytes]) -> Project:
        """The project, with the notes about everything that has no counterpart."""
        containers = {name: unit for name, unit in self._units.items() if unit.suffix == ".container"}
        for file, unit in containers.items():
            self._names[file] = self._free(self._choose_name(unit, "Container", "ContainerName"), file)
        for unit in self._units.values():
            if unit.suffix == ".timer":
                self._add_timer(unit)
        for unit in self._units.values():
            if self._budget.allows(len(unit.entries), 0, origin_of(unit).make_note_adder(self._notes)):
                self._add(unit)
            self._notes.extend(check_unused_entries(unit) if unit.suffix not in (".kube", ".build") else ())
        self._add_pods()
        tree = make_node({"services": self._services, "volumes": self._volumes}, origin_of(self._first))
        whole = long_form(tree, self._notes)
        return Project(
            "",
            get_plain_value(whole),
            collect_origins(whole),
            frozenset(),
            {},
            self._read_file,
            {**contents},
            self._notes,
            [],
            self._budget,
            self._additions,
            self._groups,
            (),
            _WORDING,
        )

    def _add(self, unit: Unit) -> None:
        if unit.suffix == ".container":
            self._add_container(unit)
        elif unit.suffix == ".volume":
            self._declare(unit)
        elif unit.suffix in (".kube", ".build"):
            rule = "compose-build" if unit.suffix == ".build" else "convert-left-out"
            what = "the image must be built and pushed" if unit.suffix == ".build" else "a .kube unit is left out"
            self._note(
                unit,
                None,
                rule,
                what,
                "reconciler convert takes the file that its Yaml names"
                if unit.suffix == ".kube"
                else "podman build, then podman push",
            )

    def _add_timer(self, timer: Unit) -> None:
        """Remember the timer of a container among the files."""
        entry = timer.last("Timer", "Unit")
        file = f"{(entry.value if entry else timer.name).removesuffix('.service')}.container"
        if file not in self._names:
            self._note(
                timer,
                entry,
                "convert-left-out",
                "no container among the files has this timer; it is left out",
                "name the .container of the same name too",
            )
        elif self._timers.setdefault(file, timer) is not timer:
            self._note(timer, entry, "convert-left-out", "another timer starts this container; this one is left out")

    def _schedule(self, timer: Unit) -> str:
        """The schedule of cron that says what the timer does; "" with a note where there is none."""
        merged: list[Times] = []
        for entry in timer.of("Timer", "OnCalendar"):
            times = read_times(entry.value)
            both = times and merge_times([*merged, times])
            if times is None or both is None or not both.schedule:
                self._note(
                    timer,
                    entry,
                    "convert-left-out",
                    "cron has no equal of this; the workload runs on demand",
                    "set job.schedule of the workload",
                )
                return ""
            if times.is_local:
                self._note(
                    timer,
                    entry,
                    "convert-changed",
                    "schedules are in UTC, not in the time of the machine",
                    "change the hours of the schedule",
                )
            merged = [both]
        return merged[0].schedule if merged else ""

    def _add_container(self, unit: Unit) -> None:
        name = self._names[f"{unit.name}{unit.suffix}"]
        definition: dict[str, Any] = {}
        for key, field in TEXTS.items():
            if entry := unit.last("Container", key):
                value = read_json_words(entry.value) or self._plain(unit, entry)
                seconds = "s" if key == "StopTimeout" and entry.value.isdecimal() else ""
                definition[field] = make_node(
                    f"{value}{seconds}" if isinstance(value, str) else value, origin_of(unit, entry)
                )
        for key, field in LISTS.items():
            definition[field] = [
                make_node(self._plain(unit, entry), origin_of(unit, entry)) for entry in unit.of("Container", key)
            ]
        for key, field in PAIRS.items():
            definition[field] = self._pairs(unit, "Container", key)
        self._add_image(unit, definition)
        self._add_health(unit, definition)
        self._add_user(unit, definition)
        self._add_limits(unit, definition)
        self._add_mounts(unit, definition)
        definition["env_file"] = [*self._env_files(unit)]
        definition["volumes"] = [self._volume(value) for value in definition["volumes"]]
        definition["depends_on"] = {wait: None for wait in self._waits(unit) if wait != name}
        if (kind := unit.last("Service", "Type")) and kind.value == "oneshot":
            definition["deploy"] = {"mode": make_node("replicated-job", origin_of(unit, kind))}
        timer = self._timers.get(f"{unit.name}{unit.suffix}")
        if timer is not None:
            definition["deploy"] = {"mode": make_node("replicated-job", origin_of(timer))}
        for entry in unit.of("Container", "Network"):
            self._note_network(unit, entry)
        self._add_to_pod(unit, name)
        schedule = self._schedule(timer) if timer is not None else ""
        self._additions[name] = self._addition(unit)._replace(schedule=schedule)
        self._services[name] = make_node(
            {field: value for field, value in definition.items() if value}, origin_of(unit)
        )

    def _add_image(self, unit: Unit, definition: dict[str, Any]) -> None:
        entry = unit.last("Container", "Image")
        if entry is None:
            return
        other = self._units.get(entry.value)
        if entry.value.endswith(".build"):
            definition["build"] = make_node({"context": "."}, origin_of(unit, entry))
        elif other is not None and (image := other.last("Image", "Image")):
            definition["image"] = make_node(image.value, origin_of(other, image))
        elif entry.value.endswith(".image"):
            self._note(unit, entry, "convert-malformed", "there is no unit of this name among the files")
        else:
            definition["image"] = make_node(self._plain(unit, entry), origin_of(unit, entry))

    def _add_health(self, unit: Unit, definition: dict[str, Any]) -> None:
        check: dict[str, Any] = {}
        if entry := unit.last("Container", "HealthCmd"):
            words = read_json_words(entry.value)
            test: Any = ["CMD", *words] if words else self._plain(unit, entry)
            check["test"] = make_node(["NONE"] if entry.value == "none" else test, origin_of(unit, entry))
            for key, field in HEALTH_CHECKS.items():
                if setting := unit.last("Container", key):
                    check[field] = make_node(setting.value, origin_of(unit, setting))
            definition["healthcheck"] = check

    def _add_user(self, unit: Unit, definition: dict[str, Any]) -> None:
        user, group = unit.last("Container", "User"), unit.last("Container", "Group")
        if entry := user or group:
            words = ":".join(part.value if part else "" for part in (user, group))
            definition["user"] = make_node(words.removesuffix(":"), origin_of(unit, entry))

    def _add_limits(self, unit: Unit, definition: dict[str, Any]) -> None:
        """``cpus`` and ``mem_limit``: those of [Service], and of the arguments of podman."""
        if (quota := unit.last("Service", "CPUQuota")) and (share := _PERCENT.fullmatch(quota.value)):
            definition["cpus"] = make_node(f"{int(share[1]) / 100:.2f}", origin_of(unit, quota))
        if (most := unit.last("Service", "MemoryMax")) and most.value != "infinity" and "mem_limit" not in definition:
            definition["mem_limit"] = make_node(most.value, origin_of(unit, most))
        for entry in unit.of("Container", "PodmanArgs"):
            words = iter([part for word in self._words(unit, entry) for part in _split_option(word)])
            for word in words:
                if word in ARGUMENTS:
                    definition[ARGUMENTS[word]] = make_node(next(words, ""), origin_of(unit, entry))
                elif word.startswith("-"):
                    self._note(unit, entry, "convert-left-out", "an argument of podman has no counterpart")

    def _env_files(self, unit: Unit) -> Iterator[Node]:
        """The files with variables, which podman reads as they are; paths of the machine only where that is allowed."""
        for entry in unit.of("Container", "EnvironmentFile"):
            path = entry.value
            if path.startswith(("/", "~", "%")) and not self._is_readable(path):
                way = "" if path.startswith("%") else "--allow-outside reads it; else "
                self._note(
                    unit,
                    entry,
                    "convert-left-out",
                    "an env file of the machine is left out",
                    f"{way}put it beside the unit",
                )
                continue
            origin = origin_of(unit, entry)
            yield make_node({"path": self._plain(unit, entry), "required": False, "format": "raw"}, origin)

    def _is_readable(self, path: str) -> bool:
        try:
            self._read_file(path)
        except UnreadableFileError:
            return False
        return True

    def _add_mounts(self, unit: Unit, definition: dict[str, Any]) -> None:
        """Mounts in the long form: ``type=volume,source=NAME,destination=PATH``."""
        for entry in unit.of("Container", "Mount"):
            fields = dict(part.strip().partition("=")[::2] for part in entry.value.split(","))
            source = fields.get("source") or fields.get("src", "")
            target = fields.get("destination") or fields.get("target") or fields.get("dst", "")
            kind = fields.get("type", "volume")
            mount: dict[str, Any] = {"type": kind, "target": target, "source": source or None}
            if kind == "volume" and source:
                mount["source"] = self._source(source, origin_of(unit, entry))
            if kind == "bind" and not source.startswith("./"):
                mount["source"] = f"/{source.lstrip('/%')}"
            values = {key: value for key, value in mount.items() if value is not None}
            definition["volumes"].append(make_node(values, origin_of(unit, entry)))

    def _volume(self, node: Node) -> Node:
        """A mount in the short form, whose volume is declared; a path with a specifier is one of the machine."""
        if not isinstance(node.value, str):
            return node
        source, colon, rest = node.value.partition(":")
        if source.startswith("%"):
            return node._replace(value=f"/{source[1:]}:{rest}")
        if not colon or source.startswith(("/", ".", "~")):
            return node
        return node._replace(value=f"{self._source(source, node.origin)}:{rest}")

    def _source(self, source: str, origin: NodeOrigin) -> str:
        """The volume that a mount names, or the unit of it; a volume without a unit is declared."""
        unit = self._units.get(source)
        if unit is not None and unit.suffix == ".volume":
            return unit.name
        name = source.removesuffix(".volume")
        if name != source:
            self._notes.append(origin.note("convert-missing", "there is no unit of this volume among the files"))
        self._volumes.setdefault(name, make_node({}, origin))
        return name

    def _declare(self, unit: Unit) -> None:
        name = unit.last("Volume", "VolumeName")
        values: dict[str, Any] = {"labels": self._pairs(unit, "Volume", "Label")}
        if name:
            values["name"] = make_node(name.value, origin_of(unit, name))
        self._volumes[unit.name] = make_node(values, origin_of(unit))

    def _add_to_pod(self, unit: Unit, name: str) -> None:
        entry = unit.last("Container", "Pod")
        if entry is None:
            return
        pod = self._units.get(entry.value)
        if pod is None or pod.suffix != ".pod":
            self._note(unit, entry, "convert-missing", "there is no unit of this pod among the files")
            return
        self._groups.setdefault(entry.value, []).append(name)

    def _add_pods(self) -> None:
        """The groups by the names of their workloads."""
        groups, self._groups = self._groups, {}
        for file, members in groups.items():
            pod = self._units[file]
            self._add_to_first(pod, members)
            for entry in pod.of("Pod", "Network"):
                self._note_network(pod, entry)
            self._groups[self._free(self._choose_name(pod, "Pod", "PodName"), file)] = members
        for file, unit in self._units.items():
            if unit.suffix == ".pod" and file not in groups:
                self._note(unit, None, "convert-left-out", "no container belongs to this pod; it is left out")

    def _add_to_first(self, pod: Unit, members: Sequence[str]) -> None:
        """Ports, mounts and description of a pod are those of its first container."""
        first = self._services[members[0]]
        for key, field in (("PublishPort", "ports"), ("Volume", "volumes")):
            entries = pod.of("Pod", key)
            nodes = [make_node(self._plain(pod, entry), origin_of(pod, entry)) for entry in entries]
            added = [self._volume(node) for node in nodes] if field == "volumes" else nodes
            if added:
                former = first.fields[field].items if field in first.fields else []
                first.fields[field] = first._replace(value=[*former, *added])
            for entry in entries if members[1:] else ():
                self._note(
                    pod,
                    entry,
                    "convert-changed",
                    f"this belongs to the container {members[0]}",
                    "move it to the container that uses it",
                )
        if description := pod.last("Unit", "Description"):
            own = self._additions[members[0]]
            self._additions[members[0]] = own._replace(description=description.value)

    def _addition(self, unit: Unit) -> Addition:
        variables: dict[str, str] = {}
        mounted: dict[str, str] = {}
        for entry in unit.of("Container", "Secret"):
            name, *options = entry.value.split(",")
            fields = dict(option.strip().partition("=")[::2] for option in options)
            secret = make_valid_name(name.strip())
            if fields.get("type") == "env":
                variables[fields.get("target") or name.strip()] = f"{secret}.payload"
            else:
                target = fields.get("target") or name.strip()
                mounted[target if target.startswith("/") else f"/run/secrets/{target}"] = secret
            self._note(
                unit,
                entry,
                "convert-missing",
                f"the opaque secret {secret} must exist",
                f"write a manifest of kind secret, of type opaque, with the name {secret}",
            )
        description = unit.last("Unit", "Description")
        return Addition(variables, mounted, {}, description.value if description else "")

    def _waits(self, unit: Unit) -> Iterator[str]:
        """The containers of the files that ``unit`` waits for."""
        entries = [entry for key in _WAITS for entry in unit.of("Unit", key)]
        for word in (word for entry in entries for word in entry.value.split()):
            name = f"{word.removesuffix('.service').removesuffix('.container')}.container"
            if name in self._names:
                yield self._names[name]

    def _pairs(self, unit: Unit, section: str, key: str) -> dict[str, Node]:
        """Name → value of the words of an entry."""
        pairs: dict[str, Node] = {}
        for entry in unit.of(section, key):
            for word in self._words(unit, entry):
                name, sign, value = word.partition("=")
                if sign and name and is_name(name):
                    pairs[name] = make_node(value, origin_of(unit, entry))
                else:
                    self._note(unit, entry, "convert-malformed", f"a word of `{key}` is not NAME=VALUE")
        return pairs

    def _words(self, unit: Unit, entry: UnitEntry) -> list[str]:
        try:
            return split_words(self._plain(unit, entry))
        except ValueError:
            self._note(unit, entry, "convert-malformed", f"a quote in `{entry.key}` does not end")
            return []

    def _plain(self, unit: Unit, entry: UnitEntry) -> str:
        """The value without escapes of percent signs; a specifier, whose value only systemd knows, gets a note."""
        is_source = entry.key in ("Volume", "Mount") and entry.value.startswith("%")
        if _SPECIFIER.search(entry.value.replace("%%", "")) and not is_source:
            self._note(
                unit, entry, "convert-changed", "a specifier of systemd stays as it is written", "write its value"
            )
        return entry.value.replace("%%", "%")

    def _choose_name(self, unit: Unit, section: str, key: str) -> str:
        entry = unit.last(section, key)
        if entry is None:
            return unit.name.rstrip("@")
        if "%" not in entry.value:
            return entry.value
        self._note(unit, entry, "convert-name", "a name with a specifier of systemd is left out; the file's counts")
        return unit.name.rstrip("@")

    def _free(self, name: str, file: str) -> str:
        """``name``, or one with the file where another unit has it."""
        text = name if name not in self._taken else f"{name}-{make_valid_name(file)}"
        self._taken.add(text)
        return text

    def _note_network(self, unit: Unit, entry: UnitEntry) -> None:
        is_own = entry.value in ("host", "none") or entry.value.startswith("container:")
        rule, what = ("convert-left-out", "this network") if is_own else ("compose-network", "`Network`")
        self._note(
            unit,
            entry,
            rule,
            f"{what} has no counterpart",
            "workloads of a GVC share one network; firewallConfig decides who reaches a workload",
        )

    def _note(self, unit: Unit, entry: UnitEntry | None, rule: str, message: str, suggestion: str = "") -> None:
        self._notes.append(origin_of(unit, entry).note(rule, message, suggestion))


def _split_option(word: str) -> Iterable[str]:
    """``--memory=1g`` in its two words."""
    name, sign, value = word.partition("=")
    return (name, value) if sign and word.startswith("-") else (word,)
