"""What a channel does after a failure: it waits, longer each time, and lets others pass a message that fails alone."""

from __future__ import annotations

from typing import NamedTuple

PAUSE_SECONDS = 1.0
"""The least seconds between two messages to one channel."""
FIRST_WAIT, LONGEST_WAIT = 5.0, 300.0
"""Seconds until a channel is tried again after its first failure, and the most to which they double."""
LONGEST_ASIDE = 3_600.0
"""The most seconds until a message is tried again that fails while others arrive."""
_PROBES, _PROBE_EACH = (2, 3, 4), 8
"""After how many failures another message is tried, which shows whether the receiver is away or refuses only one."""


class Wait(NamedTuple):
    """Seconds that the channel waits after a failure, and seconds until the message is tried again."""

    channel: float
    message: float


class Retries:
    """The failures of one channel since the daemon began. Messages are known by the numbers of their deliveries.

    While the receiver is away, the first message is tried again and again, so that all arrive in their order. Once
    another one has arrived meanwhile, the first one fails alone: it is tried less and less often, and holds up nobody.
    """

    def __init__(self) -> None:
        self.is_probing = False
        """Whether another message than the first is to be tried."""
        self.probed = 0
        """The last one that was tried in place of the first."""
        self._failures = 0
        self._failed: set[int] = set()
        self._alone: dict[int, int] = {}

    def succeed(self, number: int) -> None:
        """The receiver has answered to the message ``number``: what failed before that failed alone."""
        self._alone.update(dict.fromkeys(self._failed, 0))
        self._failed.clear()
        self._failures, self.is_probing = 0, False
        self.forget(number)

    def fail(self, number: int, retry_after: float | None) -> Wait:
        """The message ``number`` has failed; the receiver asks to wait ``retry_after`` seconds, if it does."""
        asked = max(PAUSE_SECONDS, retry_after or 0.0)
        was_probing, self.is_probing = self.is_probing, False
        if number in self._alone:
            self._alone[number] += 1
            return Wait(asked, asked + _double_wait(self._alone[number], LONGEST_ASIDE))
        self._failed.add(number)
        if was_probing:
            self.probed = number
        else:
            self._failures += 1
            self.is_probing = self._is_probe_due(retry_after)
        wait = asked if self.is_probing else max(asked, _double_wait(self._failures, LONGEST_WAIT))
        return Wait(wait, 0.0)

    def skip_probe(self) -> float:
        """There is no other message; returns the seconds that the channel waits."""
        self.is_probing = False
        return _double_wait(self._failures, LONGEST_WAIT)

    def forget(self, number: int) -> None:
        """The message ``number`` is not tried any more."""
        self._failed.discard(number)
        self._alone.pop(number, None)

    def _is_probe_due(self, retry_after: float | None) -> bool:
        """Rarely where the receiver asks to wait: it speaks of itself, and of no message."""
        return self._failures % _PROBE_EACH == 0 or (retry_after is None and self._failures in _PROBES)


def _double_wait(failures: int, most: float) -> float:
    return min(most, FIRST_WAIT * 2.0 ** min(failures - 1, 20))
