"""The times that the host engine uses, all in seconds."""

from __future__ import annotations

import msgspec


class Timing(msgspec.Struct, frozen=True):
    """The times of the termination sequence (docs/platform/workload.md#termination), times ``scale``, and of restarts.

    Without a user's preStop hook, SIGTERM comes after ``drain``, and SIGKILL ``grace`` later. With one, SIGKILL comes
    ``total`` after the beginning. SIGKILL is repeated after ``kill_retry``. An ended container restarts at once. After
    further ends in a row it waits ``backoff_base``, then twice as long each time, up to ``backoff_cap``. If the start
    itself fails (StartFailed), the first wait is already ``backoff_base``. A run of ``backoff_reset`` resets the
    backoff.
    """

    scale: float = 1.0
    drain: float = 45.0
    grace: float = 45.0
    total: float = 90.0
    kill_retry: float = 10.0
    backoff_base: float = 10.0
    backoff_cap: float = 300.0
    backoff_reset: float = 600.0

    def with_total(self, seconds: int | None) -> Timing:
        """These times for a container whose termination lasts ``seconds``; None for as they are."""
        if seconds is None:
            return self
        drain = min(self.drain, seconds / 2)
        return msgspec.structs.replace(self, drain=drain, grace=seconds - drain, total=float(seconds))
