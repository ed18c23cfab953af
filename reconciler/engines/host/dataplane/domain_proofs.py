"""Which domains are the org's: the TXT record of each is found once, and then looked up every day."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path

import msgspec

from reconciler.bugs import contain_bugs
from reconciler.clock import Clock
from reconciler.engines.domain_proof import find_proof
from reconciler.engines.host.controllers.fair_turn import event_or_time
from reconciler.engines.host.disk.atomic import write_atomic
from reconciler.errors import EngineError

PASS_SECONDS = 60.0
"""Seconds between two lookups of a domain that is not proven."""
DAY = 86_400.0
"""Seconds between two lookups of a domain that is."""
SILENT = 3
"""Lookups without an answer, one after the other, that end a pass: each of them takes seconds."""

Report = Callable[[str, str], None]
"""Takes a domain whose record has gone, and the message of an event."""


class _Proven(msgspec.Struct):
    """When the record of each proven domain was seen last, in seconds of the epoch."""

    seen: dict[str, float] = {}


class DomainProofs:
    """The proofs of the domains of one location, kept in ``path``. ``resolver`` is as for ``find_proof``.

    ``unproven`` maps domains to what is missing in DNS. ``changed`` is called when it is different. A domain stays
    proven while DNS gives no answer.
    """

    def __init__(
        self, path: Path, org: str, resolver: str, clock: Clock, report: Report, changed: Callable[[], None]
    ) -> None:
        self.unproven: dict[str, str] = {}
        self._path = path
        self._org = org
        self._resolver = resolver
        self._clock = clock
        self._report = report
        self._changed = changed
        self._wanted: frozenset[str] = frozenset()
        self._tried: dict[str, float] = {}
        self._dirty = asyncio.Event()
        self._proven: _Proven | None = None

    def want(self, domains: Collection[str]) -> None:
        """Look up ``domains``, and no others."""
        if self._wanted != domains:
            self._wanted = frozenset(domains)
            self._dirty.set()

    def is_proven(self, domain: str) -> bool:
        """Whether the record of ``domain`` was there when it was looked up last."""
        return domain in self._load().seen

    async def run(self) -> None:
        """Look up records until cancelled."""
        while True:
            self._dirty.clear()
            with contain_bugs("proofs of domains"):
                await self.check()
            await event_or_time(self._dirty, self._clock, self._clock.monotonic() + PASS_SECONDS)

    async def check(self) -> None:
        """Look up the domains that are due, the one first that was not looked up for the longest time."""
        missing = {domain: self.unproven.get(domain, "") for domain in self._wanted if not self.is_proven(domain)}
        silent = 0
        for domain in sorted(filter(self._is_due, self._wanted), key=lambda name: (self._tried.get(name, 0.0), name)):
            if silent == SILENT:
                break
            self._tried[domain] = self._clock.monotonic()
            proof = await find_proof(domain, self._org, self._resolver)
            silent = 0 if proof.answered else silent + 1
            if not proof.problem:
                missing.pop(domain, None)
                self._remember(domain, self._clock.now())
            elif proof.answered or domain in missing:
                missing[domain] = proof.problem
                if self.is_proven(domain):
                    self._remember(domain, None)
                    self._report(domain, f"{proof.problem}; it was there before")
        shown = {domain: text or "DNS gives no answer" for domain, text in missing.items() if domain in self._wanted}
        if shown != self.unproven:
            self.unproven = shown
            self._changed()

    def _is_due(self, domain: str) -> bool:
        seen = self._load().seen.get(domain)
        # A clock that was set back makes the lookup due too.
        return seen is None or not 0 <= self._clock.now() - seen < DAY

    def _load(self) -> _Proven:
        """What is known; a file that cannot be read costs only lookups."""
        if self._proven is None:
            self._proven = _Proven()
            with suppress(OSError, msgspec.MsgspecError):
                self._proven = msgspec.json.decode(self._path.read_bytes(), type=_Proven)
        return self._proven

    def _remember(self, domain: str, seen: float | None) -> None:
        proven = self._load().seen
        if seen is None:
            proven.pop(domain, None)
        else:
            proven[domain] = seen
        # Without room on the disk, the next daemon looks up what this one knows.
        with suppress(EngineError):
            write_atomic(self._path, msgspec.json.encode(_Proven(proven)), 0o600)
