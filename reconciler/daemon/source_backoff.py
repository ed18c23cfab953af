"""Polls unreachable sources less and less often, up to a limit; the first answer restores the interval."""

from __future__ import annotations

from collections.abc import Callable

import msgspec


class _Outage(msgspec.Struct, frozen=True):
    tries: int = 0
    until: float = 0.0


class SourceBackoff:
    """The backoff of each source's polls. A requested run does not wait for it.

    ``now`` returns monotonic seconds; no backoff is longer than ``cap`` seconds.
    """

    def __init__(self, now: Callable[[], float], cap: float) -> None:
        self._now = now
        self._cap = cap
        self._outages: dict[str, _Outage] = {}

    def is_backing_off(self, name: str) -> bool:
        """Whether it is too soon to poll the source again."""
        outage = self._outages.get(name)
        return outage is not None and self._now() < outage.until

    def failed(self, name: str, interval: float) -> None:
        """Record a poll without an answer; the backoff doubles each time, from ``interval`` seconds."""
        tries = self._outages[name].tries if name in self._outages else 0
        # Half an interval less: the poll after the backoff finds it over, however late the backoff began.
        until = self._now() + min(self._cap, interval * 2.0 ** min(tries, 30)) - interval / 2
        self._outages[name] = _Outage(tries + 1, until)

    def answered(self, name: str) -> None:
        """Record an answer of the source."""
        self._outages.pop(name, None)
