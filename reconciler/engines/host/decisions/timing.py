"""The times that the host engine goes by, all in seconds."""

from __future__ import annotations

import msgspec


class Timing(msgspec.Struct, frozen=True):
    """The termination sequence (docs/platform/workload.md#termination), times ``scale``; waits of restarts.

    Without a preStop hook of the user SIGTERM comes after ``drain`` and SIGKILL ``grace`` after it; with one SIGKILL
    comes ``total`` after the beginning. SIGKILL is repeated after ``kill_retry``. An ended container
    starts again at once, after the next end in a row it waits ``backoff_base``, then twice as long each time up to
    ``backoff_cap``; where it could not be started at all (StartFailed) the first wait is ``backoff_base`` already. One
    that ran for ``backoff_reset`` begins anew.
    """

    scale: float = 1.0
    drain: float = 45.0
    grace: float = 45.0
    total: float = 90.0
    kill_retry: float = 10.0
    backoff_base: float = 10.0
    backoff_cap: float = 300.0
    backoff_reset: float = 600.0
