"""Keeps the firewall of a location in the kernel: one table of nftables, always written as a whole.

The table is a function of the sandboxes that run and of the policies of their workloads, and outlives the daemon. The
policies are on disk, so the next daemon does not close what is open before it has read its records.
"""

from __future__ import annotations

import asyncio
import errno
import os
import subprocess
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

import msgspec

from reconciler.bugs import contain_bugs
from reconciler.clock import Clock
from reconciler.engines.host.controllers.fair_turn import event_or_time
from reconciler.engines.host.disk.atomic import write_atomic
from reconciler.engines.host.runtimes.podman.network.firewall_rules import FirewallPolicy, Known, table_rules
from reconciler.engines.host.runtimes.podman.network.name_servers import (
    AnswerReader,
    name_servers,
    read_answer,
    resolve_host_name,
)
from reconciler.engines.host.runtimes.podman.programs import INTERFACES, find_tool, run_nft
from reconciler.engines.host.runtimes.protocol import ContainerId
from reconciler.errors import EngineError
from reconciler.listing import list_paths
from reconciler.model.addresses import is_internal
from reconciler.model.key import Key
from reconciler.reasons import Reason
from reconciler.tasks import cancel_and_wait

_PRIVATE = {"ipv4/conf/{}/proxy_arp_pvlan": "1", "ipv4/neigh/{}/proxy_delay": "0", "ipv4/conf/{}/send_redirects": "0"}
"""Settings with which this host answers for the other sandboxes on its bridge, at once, and forwards their packets."""
_EXPIRY_SECONDS = 600.0
"""Seconds for which an address of a host name stays allowed after the last answer that had it."""
_MOST_SECONDS, _MOST_ADDRESSES = 86_400.0, 1_000
"""Bounds of what is learned for a pattern: name servers of others decide how much that is."""
CHECK_SECONDS = 60.0
"""Seconds between two checks of the table, and between two lookups of host names."""
_SECONDS = 10.0


_RESTORED = "another program had changed or removed the firewall of the containers; it was written again"
_REMOVAL = "the firewall of containers cannot be removed"


class _Stored(msgspec.Struct):
    """A policy on disk, with the addresses that were learned for its patterns of host names."""

    key: Key
    policy: FirewallPolicy
    learned: dict[str, list[str]] = {}


_decoder = msgspec.json.Decoder(list[_Stored])


class LocationFirewall:
    """The firewall of one location, whose table is named after ``owner``; ``path`` is the file of its policies."""

    def __init__(self, owner: str, path: Path, clock: Clock) -> None:
        self._table = f"reconciler_{owner}"
        self._path = path
        self._clock = clock
        self._bridge = ""
        self._sandboxes: dict[ContainerId, str] = {}
        self._policies: dict[Key, FirewallPolicy] = {}
        self._hosts: dict[str, dict[str, float]] = {}
        self._due: dict[str, float] = {}
        self._resolvers: tuple[str, ...] = ()
        self._written: list[str] | None = None
        self._listing: str | None = None
        self._isolated = False
        self._writing = asyncio.Lock()

    @property
    def active(self) -> bool:
        """Whether there is a table."""
        return bool(self._bridge)

    def load(self) -> None:
        """Begin with the policies of an earlier daemon, and without sandboxes. Blocks."""
        self._sandboxes = {}
        with suppress(OSError, msgspec.DecodeError):
            stored = _decoder.decode(self._path.read_bytes())
            self._policies = {stored_policy.key: stored_policy.policy for stored_policy in stored} | self._policies
            # Programs may use an address longer than the name server allows.
            until = self._clock.monotonic() + _EXPIRY_SECONDS
            learned = {name: texts for stored_policy in stored for name, texts in stored_policy.learned.items()}
            self._hosts = {name: dict.fromkeys(texts, until) for name, texts in learned.items()} | self._hosts
        self._resolvers = tuple(sorted(set(name_servers())))

    def set_policy(self, key: Key, policy: FirewallPolicy) -> None:
        """Set the policy of a workload; it is in force after the next ``write``."""
        self._policies[key] = policy

    async def open(self, bridge: str) -> None:
        """Write the table for sandboxes on ``bridge``, an interface that may not exist yet. Raises EngineError."""
        self._bridge, self._written = bridge, None
        try:
            await self.write()
        except EngineError:
            self._bridge = ""
            raise

    def admit(self, sandbox: ContainerId, address: str) -> None:
        """Apply the policy of its workload to a sandbox, which before reaches nothing, after the next ``write``."""
        self._sandboxes[sandbox] = address
        # Its port of the bridge is new, even if the rules are the same as before.
        self._isolated = False

    def release(self, sandbox: ContainerId) -> None:
        """Forget a sandbox; the next one with its address may belong to another workload."""
        self._sandboxes.pop(sandbox, None)

    async def write(self) -> None:
        """Make the table what it has to be; those that wait have it written together. Raises EngineError."""
        async with self._writing:
            if not self._bridge:
                return
            rules = table_rules(self._table, self._bridge, self._read_known())
            if rules != self._written or not self._isolated:
                # Before the work, so that a sandbox that is admitted meanwhile can set it back.
                self._written, self._isolated = None, True
                await asyncio.to_thread(self._apply, rules)
                self._written = rules

    async def restore(self) -> bool:
        """Write the table again if another program changed or removed it, and return whether. Raises EngineError."""
        async with self._writing:
            if not self._bridge or self._written is None:
                return False
            text = await asyncio.to_thread(self._list)
            if text is None or text == self._listing:
                return False
            # After a write of ours the listing is not known yet: writing the same again shows it.
            await asyncio.to_thread(self._apply, self._written)
            self._listing = await asyncio.to_thread(self._list) or ""
            return text != self._listing

    async def refresh_hosts(self) -> None:
        """Write changed policies; look up the allowed host names that are due, and write again. Raises EngineError.

        One name at a time, and each once a minute.
        """
        # A running container goes on with the name servers that it started with.
        self._resolvers = tuple(sorted({*self._resolvers, *name_servers()}))
        await self.write()
        names = {name for policy in self._policies.values() for name in policy.host_names}
        now = self._clock.monotonic()
        learned = {name: self._hosts.get(name, {}) for name in self.patterns}
        current = {
            name: {text: until for text, until in resolved.items() if until > now} for name, resolved in learned.items()
        }
        self._hosts = {name: self._hosts.get(name, {}) for name in names} | current
        self._due = {name: self._due.get(name, 0.0) for name in names}
        for name in sorted(name for name in names if self._due[name] <= self._clock.monotonic()):
            resolved = {address for address in await resolve_host_name(name) if not is_internal(address)}
            now = self._clock.monotonic()
            # While name servers do not answer, the last addresses stay.
            valid = {address: until for address, until in self._hosts[name].items() if until > now or not resolved}
            self._hosts[name] = valid | dict.fromkeys(resolved, now + _EXPIRY_SECONDS)
            self._due[name] = now + CHECK_SECONDS
            await self.write()

    @property
    def patterns(self) -> set[str]:
        """The patterns of host names that policies allow."""
        return {name for policy in self._policies.values() for name in policy.patterns}

    def learn(self, interface: str, packet: bytes) -> bool:
        """Allow the addresses in an answer of a name server after the next ``write``; return whether any is new."""
        answer = read_answer(packet, self._resolvers, self.patterns) if interface == self._bridge else None
        if answer is None:
            return False
        until = self._clock.monotonic() + min(max(answer.seconds, _EXPIRY_SECONDS), _MOST_SECONDS)
        caches = [self._hosts.setdefault(name, {}) for name in answer.patterns]
        # The owner of a name could otherwise open internal addresses by what he answers.
        addresses = [address for address in answer.addresses if not is_internal(address)]
        fresh = any(address not in cache for cache in caches for address in addresses)
        for cache in caches:
            cache.update(dict.fromkeys(addresses, until))
            for oldest in sorted(cache, key=cache.__getitem__)[:-_MOST_ADDRESSES]:
                del cache[oldest]
        return fresh

    async def remove(self) -> None:
        """Delete the table, also that of an earlier daemon. Raises EngineError."""
        async with self._writing:
            self._bridge, self._written = "", None
            # One that does not exist cannot be deleted.
            await asyncio.to_thread(
                run_nft, [f"add table inet {self._table}", f"delete table inet {self._table}"], _REMOVAL
            )

    def _read_known(self) -> Known:
        keys = {sandbox.key for sandbox in self._sandboxes}
        policies = {key: self._policies[key] for key in keys if key in self._policies}
        sandboxes = {address: container_id.key for container_id, address in self._sandboxes.items()}
        return Known(
            sandboxes, policies, {name: list(addresses) for name, addresses in self._hosts.items()}, self._resolvers
        )

    def _apply(self, rules: Collection[str]) -> None:
        state = self._read_known()
        stored = [
            _Stored(key, policy, {name: sorted(state.hosts.get(name, ())) for name in policy.patterns})
            for key, policy in sorted(state.policies.items())
        ]
        with suppress(EngineError):
            # On a full disk, the next daemon allows less until it has read its records.
            write_atomic(self._path, msgspec.json.encode(stored), 0o600)
        run_nft(rules, "the firewall of containers cannot be written")
        try:
            isolate_sandboxes(self._bridge)
        except OSError as error:
            message = f"containers cannot be separated from each other: {error}"
            raise EngineError(message, reason=Reason.RUNTIME_FAILED) from error

    def _list(self) -> str | None:
        """The table as nft shows it; "" without one, None where nft gives no answer."""
        command = [find_tool("nft") or "nft", "list", "table", "inet", self._table]
        try:
            done = subprocess.run(command, capture_output=True, check=False, timeout=_SECONDS, text=True)
        except (OSError, subprocess.TimeoutExpired):
            return None
        # Any other failure proves nothing about the table.
        if done.returncode:
            return "" if os.strerror(errno.ENOENT) in done.stderr else None
        return done.stdout


def isolate_sandboxes(bridge: str) -> None:
    """Let all that sandboxes on ``bridge`` send each other pass this host, and so its nftables. Blocks. Raises OSError.

    Otherwise the kernel shows nftables what stays on a bridge only with br_netfilter, and IPv6 needs no address there.
    Does nothing before the bridge exists.
    """
    if not (INTERFACES / bridge).exists():
        return
    for path, value in _PRIVATE.items():
        Path("/proc/sys/net", path.format(bridge)).write_text(value, encoding="ascii")
    for port in list_paths(INTERFACES / bridge / "brif", "*"):
        # A sandbox may end meanwhile.
        with suppress(FileNotFoundError):
            (port / "isolated").write_text("1", encoding="ascii")


class FirewallKeeper:
    """Follows changes of policies and addresses of host names, and writes the table again if others changed it."""

    def __init__(self, firewall: LocationFirewall, clock: Clock) -> None:
        self._firewall = firewall
        self._clock = clock
        self._woken = asyncio.Event()
        self._events: list[tuple[Reason, str]] = []
        self._learned = asyncio.Event()
        self._answers = AnswerReader(self._learn)
        self._tasks = [
            asyncio.create_task(coroutine) for coroutine in (self._follow(), self._check(), self._allow_learned())
        ]

    def wake(self) -> None:
        """Apply changed policies soon."""
        self._woken.set()

    def take_events(self) -> list[tuple[Reason, str]]:
        """What others did to the table since the last call."""
        events, self._events = self._events, []
        return events

    async def close(self) -> None:
        """Watch no more; the table stays."""
        self._answers.read(enabled=False)
        await cancel_and_wait(self._tasks, "the firewall")

    def _learn(self, interface: str, packet: bytes) -> None:
        with contain_bugs("the firewall"):
            if self._firewall.learn(interface, packet):
                self._learned.set()

    async def _allow_learned(self) -> None:
        """Write what was learned at once, beside lookups that may take long."""
        while True:
            await self._learned.wait()
            self._learned.clear()
            with contain_bugs("the firewall"), suppress(EngineError):
                await self._firewall.write()

    async def _follow(self) -> None:
        while True:
            self._answers.read(enabled=bool(self._firewall.patterns))
            with contain_bugs("the firewall"), suppress(EngineError):
                await self._firewall.refresh_hosts()
            await event_or_time(self._woken, self._clock, self._clock.monotonic() + CHECK_SECONDS)
            self._woken.clear()

    async def _check(self) -> None:
        while True:
            await self._clock.sleep(CHECK_SECONDS)
            with contain_bugs("the firewall"), suppress(EngineError):
                if await self._firewall.restore():
                    self._events.append((Reason.FIREWALL_RESTORED, _RESTORED))
