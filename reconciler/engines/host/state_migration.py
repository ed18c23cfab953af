"""Files in the directory of a location that an older program wrote: moved and rewritten once, and readable before.

``top`` and the next daemon read them whether or not they could be rewritten.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from reconciler.engines.host.atomic import write_atomic
from reconciler.engines.host.endpoints import move_endpoints
from reconciler.errors import EngineError

REPLICA_FILES, START_RECORDS = "replicas/*/*/*.json", "run/*/*/*/*/record.json"

_FORMER = b'"stamp":'
"""A member of every file in its former form. In encoded JSON no string holds it: its quotation marks are escaped."""

_REPLICA = {"stamp": "config_hash", "born": "creation_timestamp"}
_CONTAINER = {"due": "start_at", "termed": "sigterm_at", "killed": "sigkill_at"}
_REASONS = {"NotAlive": "LivenessFailed", "NotStarted": "StartFailed"}

Object = dict[str, Any]


def current_replica(content: bytes) -> bytes:
    """The file of a replica in the form of today."""
    return _converted(content, _sheet)


def current_start_record(content: bytes) -> bytes:
    """The record of a container's start in the form of today."""
    return _converted(content, lambda record: _renamed(record, _REPLICA))


def migrate_state(root: Path) -> None:
    """Bring the files in the directory ``root`` of a location into the form of today.

    A file that cannot be written, on a full disk for instance, stays as it is until its next change.
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
