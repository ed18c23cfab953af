"""What Podman's own configuration says about registries: mirrors, certificates, and which images it trusts."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from reconciler.listing import list_paths

SYSTEM = Path("/etc/containers")
DOCKER = Path("/etc/docker")
"""Podman reads the certificates of registries here too."""
_ACCEPT = {"type": "insecureAcceptAnything"}

_Rules = tuple[dict[str, Any], ...]


class _Policy(msgspec.Struct, frozen=True):
    """``transports`` has the rules by transport and by name."""

    default: _Rules = (_ACCEPT,)
    transports: dict[str, dict[str, _Rules]] = {}


class _Table(msgspec.Struct, frozen=True):
    prefix: str = ""
    location: str = ""


class _Registries(msgspec.Struct, frozen=True):
    registry: tuple[_Table, ...] = ()


def has_own_rules(name: str, folders: tuple[Path, ...] | None = None) -> bool:
    """Whether the operator tells Podman how to get images of ``name``, such as ``docker.io/library/nginx``.

    ``folders`` are those of containers-registries.conf(5), containers-policy.json(5) and containers-certs.d(5). A file
    that cannot be read may have a rule.
    """
    host = name.partition("/")[0]
    for folder in config_folders() if folders is None else folders:
        try:
            if (folder / "certs.d" / host).is_dir() or _restricts_images(folder / "policy.json"):
                return True
            if any(_is_within(name, prefix) for prefix in _list_registry_prefixes(folder)):
                return True
        except (OSError, ValueError, msgspec.MsgspecError):
            return True
    return False


def config_folders() -> tuple[Path, ...]:
    """The folders of Podman's configuration, of this host and of the daemon's user."""
    own = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    return SYSTEM, DOCKER, Path(own) / "containers"


def _restricts_images(path: Path) -> bool:
    """Whether the policy asks for signatures of some images, or refuses some."""
    try:
        policy = msgspec.json.decode(path.read_bytes(), type=_Policy)
    except FileNotFoundError:
        return False
    return any(rules != (_ACCEPT,) for rules in (policy.default, *policy.transports.get("docker", {}).values()))


def _list_registry_prefixes(folder: Path) -> Iterator[str]:
    """The names in the tables ``[[registry]]``; a leading ``*.`` stands for any part of a host name."""
    for path in (folder / "registries.conf", *sorted(list_paths(folder / "registries.conf.d", "*.conf"))):
        try:
            registries = msgspec.convert(tomllib.loads(path.read_text(encoding="utf-8")), _Registries)
        except FileNotFoundError:
            continue
        for table in registries.registry:
            yield table.prefix or table.location


def _is_within(name: str, prefix: str) -> bool:
    if prefix.startswith("*."):
        return name.partition("/")[0].endswith(prefix[1:])
    return name == prefix or name.startswith((f"{prefix}/", f"{prefix}:"))
