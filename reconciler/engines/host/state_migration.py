"""Converts the files that an earlier version wrote in the directory of a location.

Readers convert what they read, so the command ``top`` works before the daemon has converted the files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from reconciler.engines.host.dataplane.endpoints import move_endpoints
from reconciler.engines.host.disk.atomic import write_atomic
from reconciler.errors import EngineError
from reconciler.listing import list_paths

REPLICA_FILES = "replicas/*/*/*.json"

_FORMER = b'"stamp":'
"""A member of every file in the former form. No JSON string contains it, because quotation marks are escaped there."""

REPLICA_NAMES = {"stamp": "config_hash", "born": "creation_timestamp"}
_CONTAINER = {"due": "start_at", "termed": "sigterm_at", "killed": "sigkill_at"}
_REASONS = {"NotAlive": "LivenessFailed", "NotStarted": "StartFailed"}

Object = dict[str, Any]


def current_replica(content: bytes) -> bytes:
    """The content of a replica file in the current form."""
    return convert(content, _replica_file)


def migrate_state(root: Path) -> None:
    """Convert the replica files and the endpoints below ``root``, the directory of a location, to the current form."""
    move_endpoints(root)
    migrate_files(root, REPLICA_FILES, current_replica)


def migrate_files(root: Path, pattern: str, current: Callable[[bytes], bytes]) -> None:
    """Convert the files below ``root`` that match ``pattern``.

    A file that cannot be written, for instance on a full disk, stays as it is until its next change.
    """
    for path in list_paths(root, pattern):
        with suppress(OSError, EngineError):
            content = path.read_bytes()
            if (new := current(content)) != content:
                write_atomic(path, new, 0o600)


def convert(content: bytes, conversion: Callable[[Object], Object]) -> bytes:
    """``content`` converted if it is in the former form; unchanged if it is no JSON or has another shape."""
    if _FORMER not in content:
        return content
    try:
        return msgspec.json.encode(conversion(msgspec.json.decode(content)))
    except (msgspec.DecodeError, AttributeError, KeyError, TypeError):
        return content


def rename_members(members: Object, names: Mapping[str, str]) -> Object:
    """``members`` with the current ``names``."""
    return {names.get(name, name): value for name, value in members.items()}


def _replica_file(file: Object) -> Object:
    replica = rename_members(file["replica"], REPLICA_NAMES)
    return file | {"replica": replica | {"containers": [_container(each) for each in replica["containers"]]}}


def _container(container: Object) -> Object:
    last = container.get("last")
    if last is not None:
        last = last | {"reason": _REASONS.get(last["reason"], last["reason"])}
    return rename_members(container, _CONTAINER) | {"last": last}
