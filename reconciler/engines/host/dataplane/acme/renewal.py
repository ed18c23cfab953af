"""Decides when a certificate is ordered: a pure function of its validity, its failures and the host."""

from __future__ import annotations

from hashlib import blake2b

import msgspec

RENEWED_AFTER = 2 / 3
"""The part of its life after which a certificate is renewed."""

JITTER = 1 / 20
"""The part of the life by which renewals are spread, so that certificates of one day are not all renewed at once."""

FIRST_DELAY = 900.0
LONGEST_DELAY = 43_200.0
"""Seconds until the next order after one failure, and after many: authorities permit about five failures an hour."""
LONGEST_WAIT = 7 * 86_400.0
"""The most seconds that an authority can ask to wait."""


class OrderFailures(msgspec.Struct, frozen=True):
    """``count`` failed orders in a row, the last ``at`` that time, with the wait that the authority asked for."""

    count: int
    at: float
    message: str = ""
    retry_after: float = 0.0


SHORTEST_LIFE = 2 * 86_400.0
"""Seconds from an order to the next one while its certificate exists, even if clocks disagree about its validity; less
for one whose life is shorter.
"""
RETRIES = 12
"""So many times a renewal that fails can be tried again in the life of a certificate that is a short one."""
SHORTEST_DELAY = 60.0


class Validity(msgspec.Struct, frozen=True):
    """The start and end of a certificate's life, and when it was ordered, in seconds of the epoch."""

    start: float
    end: float
    ordered: float = 0.0


def next_order(host: str, validity: Validity | None, failures: OrderFailures | None) -> float:
    """When the certificate of ``host`` is ordered next, in seconds of the epoch; 0: now.

    ``validity`` is None without a certificate. A failure delays it, with twice the delay for each further one.
    """
    due = 0.0
    if validity is not None:
        life = validity.end - validity.start
        due = validity.start + life * (RENEWED_AFTER - JITTER * _compute_spread(host))
        due = max(due, validity.ordered + min(SHORTEST_LIFE, life * (RENEWED_AFTER - JITTER)))
    if failures is not None:
        first = FIRST_DELAY
        if validity is not None:
            first = min(first, max((validity.end - validity.start) / RETRIES, SHORTEST_DELAY))
        delay = min(first * 2.0 ** min(failures.count - 1, 16), LONGEST_DELAY)
        delay *= 1 + JITTER * _compute_spread(host)
        due = max(due, failures.at + max(delay, min(failures.retry_after, LONGEST_WAIT)))
    return due


def _compute_spread(host: str) -> float:
    """A number from 0 to 1, always the same for ``host``."""
    return int.from_bytes(blake2b(host.encode(), digest_size=4).digest()) / 0xFFFF_FFFF
