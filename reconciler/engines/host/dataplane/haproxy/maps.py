"""Maps in the live HAProxy, of routes and ports. An entry of each is the digest of all others: one read compares it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b
from typing import NamedTuple

from reconciler.engines.host.dataplane.haproxy.ingress import (
    HOSTS,
    PREFIXES,
    SECURE,
    SUBDOMAINS,
    host_entries,
    map_text,
    prefix_entries,
    subdomain_entries,
)
from reconciler.engines.host.dataplane.haproxy.master import Master
from reconciler.engines.workload.routing.table import RouteTable
from reconciler.errors import EngineError
from reconciler.reasons import Reason

_DIGEST = "_digest"
"""The key of the entry with the digest: no host name, and the start of no site, since it has no port."""
_PARTIAL = "partial"
FEW = 1000
"""With fewer changes, single entries change; otherwise a new version of the map replaces it at once."""
LONGEST_PAYLOAD = 12_000
"""Bytes of entries that are sent at once; HAProxy reads them into a buffer of 16 KiB."""
_SAFE_COMMAND = re.compile(r"[A-Za-z0-9._~:/|*% -]+")
"""A command without a character that means something to the command line of HAProxy."""
_LIVE = re.compile(r'found=(?:no|yes.*value="([^"]*)")')
_VERSION = re.compile(r"created: (\d+)")


class _Map(NamedTuple):
    """The entries of a map with their digest."""

    digest: str
    entries: Mapping[str, str]


def route_entries(table: RouteTable, secure: Iterable[str] = ()) -> dict[str, Mapping[str, str]]:
    """The entries of each map of ``table``. ``secure`` are the host names with a certificate."""
    hosts = dict.fromkeys(sorted(secure), "1")
    return {
        HOSTS: host_entries(table),
        SUBDOMAINS: subdomain_entries(table),
        PREFIXES: prefix_entries(table),
        SECURE: hosts,
    }


class LiveMaps:
    """Brings maps of the process that ``master`` manages to what is wanted."""

    def __init__(self, master: Master) -> None:
        self._master = master
        self._wanted: dict[str, _Map] = {}
        self._brought: dict[str, _Map] = {}

    def write(self, name: str, entries: Mapping[str, str]) -> None:
        """Want the map ``name``, and write the file from which a new worker gets it. Raises EngineError."""
        text = map_text(entries)
        digest = blake2b(text.encode(), digest_size=8).hexdigest()
        current = self._wanted.get(name)
        if current is None or current.digest != digest:
            self._master.write_file(name, f"{_DIGEST} {digest}\n{text}")
            self._wanted[name] = _Map(digest, entries)

    def in_force(self, name: str) -> Mapping[str, str]:
        """The entries of a map as they were brought to a process last."""
        return self._brought[name].entries if name in self._brought else {}

    async def add(self, name: str, entries: Mapping[str, str]) -> None:
        """Add ``entries`` at once to a map that is as it is wanted. Raises EngineError."""
        brought = self._brought.get(name)
        if brought is not None and brought is self._wanted.get(name):
            self.write(name, {**brought.entries, **entries})
            await self._change(name, self._wanted[name], brought.digest)
            self._brought[name] = self._wanted[name]

    async def bring(self) -> None:
        """Compare the live maps with the wanted ones, and change them. Raises EngineError."""
        for name, desired in self._wanted.items():
            live = _LIVE.search(await self._master.ask(f"@1 get map ./{name} {_DIGEST}"))
            # A process that does not know the map waits for a reload, or does not need it.
            if live is not None:
                if live[1] != desired.digest:
                    await self._change(name, desired, live[1])
                self._brought[name] = desired

    async def _change(self, name: str, desired: _Map, live: str | None) -> None:
        brought = self._brought.get(name)
        # The order of subdomains decides, and a command adds an entry only at the end.
        if brought is not None and brought.digest == live and name != SUBDOMAINS:
            changes = list(_list_changes(name, brought.entries, desired.entries))
            if len(changes) <= FEW and all(map(_SAFE_COMMAND.fullmatch, changes)):
                # A change that is cut short shows in the digest.
                await self._master.send([f"set map ./{name} {_DIGEST} {_PARTIAL}", *changes])
                await self._master.send([f"set map ./{name} {_DIGEST} {desired.digest}"])
                return
        # Requests find the former version until the commit.
        answer = await self._master.ask(f"@1 prepare map ./{name}")
        if (version := _VERSION.search(answer)) is None:
            raise EngineError(f"HAProxy takes no new version of {name}", reason=Reason.PROXY_FAILED)
        for lines in _list_payloads({_DIGEST: desired.digest, **desired.entries}):
            await self._master.ask(f"@1 add map @{version[1]} ./{name} <<\n{lines}")
        await self._master.ask(f"@1 commit map @{version[1]} ./{name}")


def _list_changes(name: str, before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[str]:
    for key in before.keys() - after.keys():
        yield f"del map ./{name} {key}"
    for key, value in after.items():
        if before.get(key) != value:
            yield f"{'set' if key in before else 'add'} map ./{name} {key} {value}"


def _list_payloads(entries: Mapping[str, str]) -> Iterator[str]:
    """The lines of a map, in parts that HAProxy can read at once."""
    lines: list[str] = []
    size = 0
    for key, value in entries.items():
        line = f"{key} {value}\n"
        if size + len(line) > LONGEST_PAYLOAD:
            yield "".join(lines)
            lines, size = [], 0
        lines.append(line)
        size += len(line)
    yield "".join(lines)
