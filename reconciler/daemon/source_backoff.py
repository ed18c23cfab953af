"""Sources that do not answer are asked less and less often, up to a bound; at the first answer all is as before."""

from __future__ import annotations

from collections.abc import Callable

import msgspec


class _Outage(msgspec.Struct, frozen=True):
    tries: int = 0
    until: float = 0.0


class SourceBackoff:
    """How long polls of each source rest. Whoever asks for a look by name does not wait for that.

    ``now`` in seconds that never run backwards; no rest is longer than ``cap`` seconds.
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
        """A look at the source, polled every ``interval`` seconds, got no answer: each rest is twice the last."""
        tries = self._outages[name].tries if name in self._outages else 0
        # The poll after the rest finds it over, however late that rest began.
        until = self._now() + min(self._cap, interval * 2.0 ** min(tries, 30)) - interval / 2
        self._outages[name] = _Outage(tries + 1, until)

    def answered(self, name: str) -> None:
        """The source has answered."""
        self._outages.pop(name, None)
