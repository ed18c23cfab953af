"""The tags of a workload that name commands before and after each snapshot of its volumes."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from reconciler.model.kinds.workload import Workload, mounted_in
from reconciler.model.platform import POST_SNAPSHOT, PRE_SNAPSHOT

_SHELL = ("/bin/sh", "-c")


class SnapshotHooks(NamedTuple):
    """The commands around a snapshot, () for none, and the name of the ``container`` in which they run."""

    container: str = ""
    pre: tuple[str, ...] = ()
    post: tuple[str, ...] = ()


def read_snapshot_hooks(body: bytes, volumeset: str) -> SnapshotHooks:
    """The hooks in the ``body`` of a workload, in normal form, for its volume of the volume set of that name."""
    if PRE_SNAPSHOT.encode() not in body and POST_SNAPSHOT.encode() not in body:
        return SnapshotHooks()
    workload = msgspec.json.decode(body, type=Workload)
    pre, post = (parse_hook(str(workload.tags.get(tag, ""))) for tag in (PRE_SNAPSHOT, POST_SNAPSHOT))
    container = next(
        (container.name for container in workload.spec.containers if volumeset in mounted_in([container])), ""
    )
    return SnapshotHooks(container, pre, post) if container else SnapshotHooks()


def parse_hook(text: str) -> tuple[str, ...]:
    """A program with its arguments: a list in JSON is one, any other text is for a shell, and "" is none."""
    if not text.strip():
        return ()
    try:
        return msgspec.json.decode(text, type=tuple[str, ...]) or ()
    except msgspec.DecodeError:
        return (*_SHELL, text)
