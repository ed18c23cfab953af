"""Limits of requests: for each address and caller, at once, and delays after refused credentials; memory is bounded."""

from __future__ import annotations

import functools
import ipaddress
import math
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from reconciler.api.problems import Problem

FREE_FAILURES = 5
"""Refused credentials of an address, or of an account, that cost it nothing."""
LONGEST_DELAY = 60.0
"""Seconds for which the longest delay after refused credentials lasts; the time doubles with each."""
MOST_ADDRESSES = 10_000
"""The addresses, and the callers, that are remembered: those of the newest requests."""
BURST_SECONDS = 10.0
"""A burst may have the requests of so many seconds."""
_NETWORK_BITS = 64
MOST_LONG, MOST_LONG_OF_CALLER = 16, 4
"""Requests that last long and are admitted at once, and those of one caller."""


class TooManyRequests(Problem):
    """A request above a limit. The audit log has none of them: a flood would fill it."""

    @property
    def is_audited(self) -> bool:
        """Never."""
        return False


class RateLimit:
    """Refuses requests of ``subject`` (such as "this address") above ``rate`` a second for long; 0: no limit.

    The generic cell rate algorithm: for each name, only the time at which all its requests are paid for.
    """

    def __init__(self, subject: str, rate: int, now: Callable[[], float]) -> None:
        self._subject = subject
        self._rate = rate
        self._now = now
        self._paid: OrderedDict[str, float] = OrderedDict()

    def count(self, name: str) -> None:
        """Count a request of ``name``. Raises Problem 429 if there were too many; that one does not count."""
        if not self._rate:
            return
        now = self._now()
        paid = max(self._paid.get(name, now), now) + 1 / self._rate
        wait = paid - now - BURST_SECONDS
        if wait > 0:
            message = f"too many requests of {self._subject}: more than {self._rate} a second"
            raise TooManyRequests(429, message, headers={"Retry-After": str(math.ceil(wait))})
        self._paid[name] = paid
        self._paid.move_to_end(name)
        if len(self._paid) > MOST_ADDRESSES:
            self._paid.popitem(last=False)


class FailedLogins:
    """Counts refused credentials of each ``subject`` (such as "this address"), which then waits for a growing time."""

    def __init__(self, subject: str, now: Callable[[], float]) -> None:
        self._subject = subject
        self._now = now
        self._failures: OrderedDict[str, tuple[int, float]] = OrderedDict()

    def check(self, name: str) -> None:
        """Raise Problem 429 while ``name`` has to wait."""
        count, last = self._failures.get(name, (0, 0.0))
        wait = last + _compute_delay(count) - self._now()
        if wait > 0:
            seconds = str(max(1, round(wait)))
            raise Problem(429, f"too many refused credentials of {self._subject}", headers={"Retry-After": seconds})

    def add(self, name: str) -> None:
        """Count a refused credential."""
        count, _ = self._failures.pop(name, (0, 0.0))
        self._failures[name] = (count + 1, self._now())
        if len(self._failures) > MOST_ADDRESSES:
            self._failures.popitem(last=False)

    def forget(self, name: str) -> None:
        """A valid credential ends the count."""
        self._failures.pop(name, None)


@functools.lru_cache(maxsize=1024)
def network_of(address: str) -> str:
    """The /64 network of an IPv6 address, since one machine may use all of it; any other address as it is."""
    try:
        ip = ipaddress.ip_address(address)
    except ValueError:
        return address
    if isinstance(ip, ipaddress.IPv6Address) and ip.ipv4_mapped is None:
        return str(ipaddress.ip_network((int(ip), _NETWORK_BITS), strict=False))
    return str(getattr(ip, "ipv4_mapped", None) or ip)


def _compute_delay(failures: int) -> float:
    return 0.0 if failures < FREE_FAILURES else min(LONGEST_DELAY, 2.0 ** (failures - FREE_FAILURES))


class Admission:
    """Bounds the requests at once that do what ``words`` describe: ``most``, and ``most_of_caller`` of one caller."""

    def __init__(self, words: str, most: int = MOST_LONG, most_of_caller: int = MOST_LONG_OF_CALLER) -> None:
        self._words = words
        self._most = most
        self._most_of_caller = most_of_caller
        self._admitted: Counter[str] = Counter()

    def count(self) -> int:
        """The requests that are admitted now."""
        return self._admitted.total()

    @contextmanager
    def admit(self, caller: str) -> Iterator[None]:
        """Admit a request of ``caller`` until the context ends. Raises Problem."""
        if self._admitted[caller] >= self._most_of_caller or self._admitted.total() >= self._most:
            raise Problem(429, f"too many requests {self._words} at once", headers={"Retry-After": "5"})
        self._admitted[caller] += 1
        try:
            yield
        finally:
            self._admitted[caller] -= 1
            self._admitted += Counter()  # forgets those without requests
