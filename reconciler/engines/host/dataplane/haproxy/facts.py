"""What the live process of HAProxy shows of itself, beside its backends; and when it can return memory."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from reconciler.engines.host.dataplane.haproxy.config import EMPTY, HOLDS, NO_REPLICA, PORTS
from reconciler.engines.host.dataplane.haproxy.outside import COUNTED
from reconciler.engines.host.dataplane.haproxy.split import SPLITS, backend_of

# `show proc` goes to the master: no worker knows the former ones.
SHOW_FACTS = (
    f"@1 show info;@1 show map ./{HOLDS};@1 show map ./{SPLITS};@1 show map ./{EMPTY};@1 show table {COUNTED};show proc"
)

RELEASE_MEMORY = ("collect garbage", f"clear map @4294967295 ./{PORTS}")
"""Commands that take some 10 ms together. The first one is of our script, for the memory of scripts. The second one
removes nothing, since no map ever has this version, and then HAProxy returns free memory to the system.
"""

FLOOD = 100
"""So many connections at once are a flood: each leaves 20 KB that HAProxy keeps."""
FLOOD_ENDS = 4
"""A flood is over when one connection in so many is left."""
RELEASE_SECONDS = 5.0
"""The least seconds between two releases of memory."""

_ENTRY = re.compile(r"^0x[0-9a-f]+ (\S+) (\S+)$", re.MULTILINE)
_COUNTED = re.compile(r"^0x[0-9a-f]+: key=(\S+) .*conn_cur=(\d+) http_req_cnt=(\d+)", re.MULTILINE)
_FORMER_WORKERS = "# old workers"
_WORKER = re.compile(r"^(\d+) +worker ", re.MULTILINE)


class Counted(NamedTuple):
    """The requests of a backend that count as traffic, where others do not: so far, and now."""

    arrived: int = 0
    open: int = 0


class Facts(NamedTuple):
    """What the live process shows of itself, beside its backends.

    ``digest`` is that of its structure, ``process`` its number, ``holds`` and ``splits`` are the entries of its maps,
    ``empty`` are the backends without a ready replica, and ``former`` the numbers of the workers that take no new
    connections, and still have some. A process that takes none itself shows no digest. ``connections`` are those that
    are open now.
    """

    digest: str = ""
    process: str = ""
    holds: Mapping[str, str] = {}
    splits: Mapping[str, str] = {}
    counted: Mapping[str, Counted] = {}
    former: tuple[str, ...] = ()
    connections: int = 0
    empty: Mapping[str, str] = {}

    @property
    def former_workers(self) -> int:
        """How many former workers there are."""
        return len(self.former)


def read_facts(text: str) -> Facts:
    """The facts in the output of ``SHOW_FACTS``."""
    info, pairs = dict(map(_split_line, text.splitlines())), _ENTRY.findall(text)
    empty = {name: value for name, value in pairs if value == NO_REPLICA}
    entries = {name: value for name, value in pairs if value != NO_REPLICA}
    # One output has all maps, so the form of a key shows which one it is from.
    holds = {name: end for name, end in entries.items() if backend_of(name) == name}
    splits = {name: value for name, value in entries.items() if name not in holds}
    digest = info.get("description", "") if info.get("stopping") != "1" else ""
    counts = _read_counted(text), _former_workers(text), int(info.get("currconns") or 0)
    return Facts(digest, info.get("pid", ""), holds, splits, *counts, empty)


def _split_line(line: str) -> tuple[str, str]:
    name, _, value = line.partition(":")
    return name.lower(), value.strip()


def _read_counted(text: str) -> dict[str, Counted]:
    """The rows in the output of ``show table``."""
    return {name: Counted(int(arrived), int(active)) for name, active, arrived in _COUNTED.findall(text)}


def _former_workers(text: str) -> tuple[str, ...]:
    """The numbers of the workers that take no new connections in the output of ``show proc``.

    The master names them: /proc hides the processes of a HAProxy with more capabilities from the daemon.
    """
    _, _, rest = text.partition(_FORMER_WORKERS)
    return tuple(_WORKER.findall(rest.partition("\n#")[0]))


class Floods:
    """Notes the most connections at once since memory was released."""

    def __init__(self) -> None:
        self._most = 0
        self._few = False
        self._released_at = float("-inf")

    def has_ended(self, connections: int, now: float) -> bool:
        """Whether a flood has ended, with so many ``connections`` left at ``now`` (monotonic seconds).

        True once for each flood, at most every 5 seconds, and never at the first call with few connections: the others
        may still be leaving.
        """
        self._most = max(self._most, connections)
        before, self._few = self._few, connections <= self._most // FLOOD_ENDS
        if self._most < FLOOD or not (before and self._few) or now < self._released_at + RELEASE_SECONDS:
            return False
        self._most, self._released_at = connections, now
        return True
