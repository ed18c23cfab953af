"""Short forms of compose files in their long forms, so that merging and converting meet only these."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from reconciler.convert.compose.nodes import Node
from reconciler.convert.notes import ConversionNote

MOST_PORTS = 100
"""The most ports of one range; the ports of a longer one are left out."""
_PORT = re.compile(
    r"(?:(?P<ip>\[[0-9a-fA-F:.]+\]|[0-9]{1,3}(?:\.[0-9]{1,3}){3}):)?(?:(?P<published>[0-9]{1,5}(?:-[0-9]{1,5})?)?:)?"
    r"(?P<target>[0-9]{1,5}(?:-[0-9]{1,5})?)(?:/(?P<protocol>[a-z]+))?"
)
_HOST_PATH = ("/", ".", "~")
_PAIRS = {
    "environment": "=",
    "labels": "=",
    "annotations": "=",
    "sysctls": "=",
    "args": "=",
    "extra_hosts": "=:",
    "driver_opts": "=",
}
"""Fields that are a mapping or a list of pairs, and the signs between name and value."""
_NAMES = frozenset({"depends_on", "networks"})
"""Fields of a service that are a mapping or a list of names."""
_LISTS = frozenset({"tmpfs", "dns", "dns_search", "dns_opt", "label_file"})
"""Fields that are a list or one item."""

Notes = list[ConversionNote]


def long_form(project: Node, notes: Notes) -> Node:
    """The document ``project`` with the long form of everything that has one; notes name what is malformed."""
    sections = dict(project.fields)
    if not isinstance(project.value, dict):
        if project.value is not None:
            notes.append(project.origin.note("convert-malformed", "a compose file is a mapping with `services`"))
        return project._replace(value={})
    for section in ("services", "volumes", "networks", "secrets", "configs"):
        if section in sections:
            members = {
                name: _convert_fields(node, notes, is_service=section == "services")
                for name, node in sections[section].fields.items()
            }
            sections[section] = _require_mapping(sections[section], notes)._replace(value=members)
    if "include" in sections:
        sections["include"] = _convert_items(sections["include"], "path", notes)
    return project._replace(value=sections)


def _convert_fields(node: Node, notes: Notes, *, is_service: bool) -> Node:
    """A service, volume or the like."""
    if not isinstance(node.value, dict):
        return node
    members = {}
    for name, value in node.value.items():
        if value.directive and value.value is None:
            members[name] = value
            continue
        form = _SERVICE.get(name) if is_service else None
        members[name] = form(value, notes) if form else _convert_pairs(value, name, notes)
    return node._replace(value=members)


def _convert_pairs(node: Node, name: str, notes: Notes) -> Node:
    """A list of pairs or names as a mapping, and the same in the mapping ``node``."""
    if name in _PAIRS and isinstance(node.value, list):
        members: dict[str, Node] = {}
        for item in node.value:
            if not isinstance(item.value, str) or not item.value:
                notes.append(item.origin.note("convert-malformed", f"an entry of `{name}` is not a text NAME=VALUE"))
                continue
            end = _end_of_name(item.value, _PAIRS[name])
            members[item.value[:end]] = item._replace(value=item.value[end + 1 :] if end < len(item.value) else None)
        return node._replace(value=members)
    if isinstance(node.value, dict) and name not in _PAIRS:
        return node._replace(value={key: _convert_pairs(member, key, notes) for key, member in node.value.items()})
    return node


def _end_of_name(text: str, signs: str) -> int:
    return min((position for position in map(text.find, signs) if position >= 0), default=len(text))


def _require_mapping(node: Node, notes: Notes) -> Node:
    if not isinstance(node.value, dict) and node.value is not None:
        notes.append(node.origin.note("convert-malformed", f"`{node.origin.at[-1]}` is not a mapping"))
    return node._replace(value=node.fields)


def _convert_names(node: Node, notes: Notes) -> Node:
    """A list of names as a mapping of them to nothing."""
    if not isinstance(node.value, list):
        return node
    names = {}
    for item in node.value:
        if isinstance(item.value, str):
            names[item.value] = item._replace(value=None)
        else:
            notes.append(item.origin.note("convert-malformed", "an entry of this list is not a name"))
    return node._replace(value=names)


def _wrap_in_list(node: Node, _: Notes) -> Node:
    """One item as a list of it."""
    return node if isinstance(node.value, list) or node.value is None else node._replace(value=[node])


def _convert_items(node: Node, field: str, notes: Notes) -> Node:
    """A list, or one item, of texts as mappings with the text as ``field``."""
    items = []
    for item in _wrap_in_list(node, notes).items:
        if isinstance(item.value, str):
            items.append(_make_mapping(item, {field: item.value}))
        elif isinstance(item.value, dict):
            items.append(item)
        else:
            notes.append(item.origin.note("convert-malformed", f"an entry of `{node.origin.at[-1]}` is not a text"))
    return node._replace(value=items)


def _make_mapping(node: Node, values: dict[str, Any]) -> Node:
    """A mapping with ``values`` at the place of ``node``, without those that are None."""
    return node._replace(value={key: Node(value, node.origin) for key, value in values.items() if value is not None})


def _make_text_converter(field: str) -> Callable[[Node, Notes], Node]:
    """A text as a mapping with the text as ``field``."""
    return lambda node, notes: (
        _make_mapping(node, {field: node.value}) if isinstance(node.value, str) else _convert_pairs(node, field, notes)
    )


def _make_list_converter(field: str) -> Callable[[Node, Notes], Node]:
    return lambda node, notes: _convert_items(node, field, notes)


def _convert_ports(node: Node, notes: Notes) -> Node:
    ports: list[Node] = []
    for item in _wrap_in_list(node, notes).items:
        if isinstance(item.value, dict):
            ports.append(item)
        else:
            ports += _parse_port(item, notes)
    return node._replace(value=ports)


def _parse_port(item: Node, notes: Notes) -> Iterator[Node]:
    """A port or a range of them in the short form."""
    text = str(item.value) if isinstance(item.value, str | int) and not isinstance(item.value, bool) else ""
    match = _PORT.fullmatch(text)
    if match is None:
        notes.append(item.origin.note("convert-malformed", "a port is [[IP:]PUBLISHED:]TARGET[/PROTOCOL]"))
        return
    targets, published = _parse_range(match["target"]), _parse_range(match["published"] or "")
    if not targets:
        notes.append(item.origin.note("convert-malformed", "a range begins with its lowest port"))
        return
    if len(targets) > MOST_PORTS:
        notes.append(item.origin.note("convert-left-out", *too_many(len(targets))))
        return
    # A range published for one target means one free port of it.
    paired = published if len(published) == len(targets) else [None] * len(targets)
    for number, host in zip(targets, paired, strict=True):
        ip = (match["ip"] or "").strip("[]") or None
        yield _make_mapping(item, {"target": number, "published": host, "host_ip": ip, "protocol": match["protocol"]})


def too_many(count: int) -> tuple[str, str]:
    """The message and the suggestion for a range of so many ports."""
    return f"a range of {count:,} ports is left out: at most {MOST_PORTS} are declared", "name the ports that are used"


def _parse_range(text: str) -> range:
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1) if text else range(0)


def _convert_volumes(node: Node, notes: Notes) -> Node:
    volumes = []
    for item in _wrap_in_list(node, notes).items:
        if isinstance(item.value, dict):
            volumes.append(item)
        elif isinstance(item.value, str) and item.value:
            volumes.append(_parse_volume(item))
        else:
            notes.append(item.origin.note("convert-malformed", "a volume is [SOURCE:]TARGET[:MODE] or a mapping"))
    return node._replace(value=volumes)


def _parse_volume(item: Node) -> Node:
    """A mount in the short form."""
    parts = item.value.split(":")
    source, target = (parts[0], parts[1]) if len(parts) > 1 else (None, parts[0])
    modes = parts[2].split(",") if len(parts) > 2 else []
    kind = "bind" if source and source.startswith(_HOST_PATH) else "volume"
    values: dict[str, Any] = {"type": kind, "source": source, "target": target}
    node = _make_mapping(item, {**values, "read_only": True if "ro" in modes else None})
    others = [mode for mode in modes if mode not in ("ro", "rw")] + parts[3:]
    return node._replace(value={**node.value, "mode": Node(",".join(others), item.origin)}) if others else node


_SERVICE: dict[str, Callable[[Node, Notes], Node]] = {
    **dict.fromkeys(_NAMES, _convert_names),
    **dict.fromkeys(_LISTS, _wrap_in_list),
    "ports": _convert_ports,
    "volumes": _convert_volumes,
    "secrets": _make_list_converter("source"),
    "configs": _make_list_converter("source"),
    "env_file": _make_list_converter("path"),
    "extends": _make_text_converter("service"),
    "build": _make_text_converter("context"),
}
