"""Obtains and renews the certificates of host names, one order after the other, and remembers what failed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec.structs import replace

from reconciler.bugs import contain_bugs
from reconciler.clock import Clock
from reconciler.engines.host.controllers.fair_turn import event_or_time
from reconciler.engines.host.dataplane.acme.dns_hook import remove_presented
from reconciler.engines.host.dataplane.acme.orders import (
    Order,
    OrderAnswer,
    compute_thumbprint,
    load_account_key,
    place_order,
)
from reconciler.engines.host.dataplane.acme.renewal import OrderFailures, Validity, next_order
from reconciler.engines.host.dataplane.certificates.directory import CertificateDirectory
from reconciler.engines.host.dataplane.certificates.pem import PemCertificate
from reconciler.engines.host.disk.atomic import write_atomic
from reconciler.errors import EngineError
from reconciler.reasons import Reason
from reconciler.settings import AcmeSettings
from reconciler.times import format_iso_time

PASS_SECONDS = 60.0
"""Seconds between two passes over all host names."""

Report = Callable[[str, Reason, str], None]
"""Takes a host name, the reason of an event, and its message."""

_ACCOUNT, _STATE, _CERTIFICATES, _PRESENTED = "account.pem", "state.json", "certificates", "presented.json"
_INTERRUPTED = "the order was interrupted"


class _State(msgspec.Struct):
    """What outlives the daemon: when each host got its certificate, failures, and when orders began that run.

    One that still runs according to this when its daemon has ended has failed.
    """

    issued: dict[str, float] = {}
    failures: dict[str, OrderFailures] = {}
    running: dict[str, float] = {}


def read_failures(directory: Path) -> dict[str, OrderFailures]:
    """The last failed orders of the hosts in ``directory``; none if its state cannot be read."""
    return _read_state(directory).failures


def _read_state(directory: Path) -> _State:
    with suppress(OSError, msgspec.MsgspecError):
        return msgspec.json.decode((directory / _STATE).read_bytes(), type=_State)
    return _State()


class Issuer:
    """The certificates of one location, whose files are in ``directory``. Nothing is ordered unless ``is_proven`` is
    true for the domain of the host.

    ``changed`` is called when there is a new certificate or another problem. ``problems`` maps host names to the reason
    why they have no new certificate.
    """

    def __init__(
        self,
        directory: Path,
        settings: AcmeSettings,
        is_proven: Callable[[str], bool],
        clock: Clock,
        report: Report,
        changed: Callable[[], None],
    ) -> None:
        self.problems: dict[str, str] = {}
        self._directory = directory
        self._settings = settings
        self._is_proven = is_proven
        self._clock = clock
        self._report = report
        self._changed = changed
        self._stored = CertificateDirectory(directory / _CERTIFICATES)
        self._wanted: dict[str, str] = {}
        self._dns: frozenset[str] = frozenset()
        self._dirty = asyncio.Event()
        self._state: _State | None = None

    @property
    def certificates(self) -> tuple[PemCertificate, ...]:
        """The certificates that were issued, expired ones too."""
        return self._stored.certificates

    def open(self) -> str:
        """Read what is stored; the thumbprint of the account, which answers challenges. Raises EngineError."""
        self._load()
        self._stored.refresh()
        return compute_thumbprint(load_account_key(self._directory / _ACCOUNT))

    @property
    def wildcards(self) -> bool:
        """Whether it obtains certificates for wildcards, which needs records of DNS."""
        return bool(self._settings.dns_hook)

    def want(self, hosts: Mapping[str, str], dns: Collection[str] = ()) -> None:
        """Obtain certificates for ``hosts``, each with the domain that has to be proven for it.

        Those of ``dns`` are checked by a record of DNS, if there is a hook for it.
        """
        self._dns = frozenset(dns)
        if hosts != self._wanted:
            self._wanted = dict(hosts)
            self.wake()

    def wake(self) -> None:
        """Begin a pass now: a domain may be proven."""
        self._dirty.set()

    async def run(self) -> None:
        """Obtain and renew certificates until cancelled."""
        while True:
            self._dirty.clear()
            with contain_bugs("certificates"):
                try:
                    await self.work()
                except EngineError as error:
                    self._show(dict.fromkeys(self._wanted, str(error)))
            await event_or_time(self._dirty, self._clock, self._clock.monotonic() + PASS_SECONDS)

    async def work(self) -> None:
        """Place the orders that are due. Raises EngineError."""
        await asyncio.to_thread(self._stored.refresh)
        self._forget_future()
        self._end_interrupted()
        # An order that was killed may have left its record.
        await asyncio.to_thread(remove_presented, self._settings.dns_hook, self._directory / _PRESENTED)
        while (host := self._next_host()) is not None:
            await self._obtain(host)
        self._show(self._list_failures())

    def _forget_future(self) -> None:
        """Let times that a clock wrote which was ahead count from now: they would delay orders until they come."""
        state, latest = self._load(), self._clock.expiry().latest
        issued = {host: min(at, latest) for host, at in state.issued.items()}
        failures = {host: replace(failures, at=min(failures.at, latest)) for host, failures in state.failures.items()}
        if (issued, failures) != (state.issued, state.failures):
            self._state = _State(issued, failures)
            self._save()

    def _next_host(self) -> str | None:
        """The host whose order is due for the longest time; None if none is."""
        now, state = self._clock.now(), self._load()
        orders = [
            (next_order(host, self._validity(host), state.failures.get(host)), host)
            for host, domain in self._wanted.items()
            if self._is_proven(domain)
        ]
        due, host = min(orders, default=(0.0, ""))
        return host if host and due <= now else None

    async def _obtain(self, host: str) -> None:
        state = self._load()
        count = state.failures[host].count if host in state.failures else 0
        # If it is interrupted, it counts as failed: neither a full disk nor a crash leads to one order after the other.
        state.running[host] = self._clock.now()
        self._save()
        answer = await asyncio.to_thread(self._place, host)
        if answer.problem:
            del state.running[host]
            state.failures[host] = OrderFailures(count + 1, self._clock.now(), answer.problem, answer.retry_after)
            self._save()
            due = format_iso_time(next_order(host, self._validity(host), state.failures[host]))
            self._report(host, Reason.CERTIFICATE_FAILED, f"{host}: {answer.problem}; the next order is at {due}")
            return
        file = f"{host.replace('*', '_wildcard')}.pem"
        write_atomic(self._directory / _CERTIFICATES / file, answer.pem.encode(), 0o600)
        del state.running[host]
        state.failures.pop(host, None)
        state.issued[host] = self._clock.now()
        self._save()
        await asyncio.to_thread(self._stored.refresh)
        self._report(host, Reason.CERTIFICATE_ISSUED, f"the certificate for {host} was issued")
        self._changed()

    def _end_interrupted(self) -> None:
        """Let orders fail that neither this daemon nor an earlier one has ended."""
        state = self._load()
        for host, began in state.running.items():
            count = state.failures[host].count if host in state.failures else 0
            state.failures[host] = OrderFailures(count + 1, began, _INTERRUPTED)
        state.running.clear()

    def _place(self, host: str) -> OrderAnswer:
        settings = self._settings
        key = load_account_key(self._directory / _ACCOUNT)
        order = Order(host, settings.directory, settings.email, key, str(settings.ca_file or ""))
        if settings.dns_hook and (host in self._dns or "*" in host):
            file = str((self._directory / _PRESENTED).absolute())
            order = msgspec.structs.replace(order, hook=settings.dns_hook, presented=file)
        return place_order(order)

    def _validity(self, host: str) -> Validity | None:
        certificates = (certificate for certificate in self._stored.certificates if certificate.names == (host,))
        ordered = self._load().issued.get(host, 0.0)
        return next(
            (Validity(certificate.not_before, certificate.not_after, ordered) for certificate in certificates), None
        )

    def _list_failures(self) -> dict[str, str]:
        failures = self._load().failures
        return {host: failures[host].message for host in self._wanted if host in failures}

    def _show(self, problems: dict[str, str]) -> None:
        if problems != self.problems:
            self.problems = problems
            self._changed()

    def _load(self) -> _State:
        """The state; one that cannot be read is made anew, and costs lookups and at most one order a host."""
        if self._state is None:
            self._state = _read_state(self._directory)
        return self._state

    def _save(self) -> None:
        """Write the state. Raises EngineError."""
        write_atomic(self._directory / _STATE, msgspec.json.encode(self._load()), 0o600)
