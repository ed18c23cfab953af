"""Converts the files that an earlier version wrote in the directory of a location; reads them in either form.

``top`` and the next daemon read them, converted or not.
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

REPLICA_FILES, START_RECORDS = "replicas/*/*/*.json", "run/*/*/*/*/record.json"

_FORMER = b'"stamp":'
"""A member of every file in the former form. No JSON string contains it, because quotation marks are escaped there."""

_REPLICA = {"stamp": "config_hash", "born": "creation_timestamp"}
_CONTAINER = {"due": "start_at", "termed": "sigterm_at", "killed": "sigkill_at"}
_REASONS = {"NotAlive": "LivenessFailed", "NotStarted": "StartFailed"}

Object = dict[str, Any]


def current_replica(content: bytes) -> bytes:
    """The content of a replica file in the current form."""
    return _converted(content, _sheet)


def current_start_record(content: bytes) -> bytes:
    """The content of a container's start record in the current form."""
    return _converted(content, lambda record: _renamed(record, _REPLICA))


def migrate_state(root: Path) -> None:
    """Convert the files below ``root``, the directory of a location, to the current form.

    A file that cannot be written, for instance on a full disk, stays as it is until its next change.
    """
    move_endpoints(root)
    for pattern, current in ((REPLICA_FILES, current_replica), (START_RECORDS, current_start_record)):
        for path in root.glob(pattern):
            with suppress(OSError, EngineError):
                content = path.read_bytes()
                if (new := current(content)) != content:
                    write_atomic(path, new, 0o600)


def _converted(content: bytes, convert: Callable[[Object], Object]) -> bytes:
    if _FORMER not in content:
        return content
    try:
        return msgspec.json.encode(convert(msgspec.json.decode(content)))
    except (msgspec.DecodeError, AttributeError, KeyError, TypeError):
        return content


def _sheet(sheet: Object) -> Object:
    replica = _renamed(sheet["replica"], _REPLICA)
    return sheet | {"replica": replica | {"containers": [_container(each) for each in replica["containers"]]}}


def _container(container: Object) -> Object:
    last = container.get("last")
    if last is not None:
        last = last | {"reason": _REASONS.get(last["reason"], last["reason"])}
    return _renamed(container, _CONTAINER) | {"last": last}


def _renamed(members: Object, names: Mapping[str, str]) -> Object:
    return {names.get(name, name): value for name, value in members.items()}
