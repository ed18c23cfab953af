"""When a request is sent again."""

from __future__ import annotations

import time

from reconciler.platform_cli.transport import Response

RETRY_SECONDS = 10.0
"""How long a read is repeated while the server is not ready, and the longest ``Retry-After`` that is waited for."""
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 1.0
BUSY, UNAVAILABLE = 429, 503


class RequestRetries:
    """When a request is sent again: after ``429``, and if it is ``repeatable`` also after ``503`` and lost connections.

    It goes on for ``RETRY_SECONDS``.
    """

    def __init__(self, *, repeatable: bool) -> None:
        self._repeatable = repeatable
        self._deadline = time.monotonic() + RETRY_SECONDS
        self._pause = FIRST_PAUSE / 2

    def pause(self, response: Response | None = None) -> float | None:
        """Seconds until the next try after ``response`` (None: the connection was lost); None: there is none."""
        left = self._deadline - time.monotonic()
        if response is not None and response.status == BUSY:
            wait = max(_retry_after(response), FIRST_PAUSE)
            return wait if wait <= left else None
        if response is not None and response.status != UNAVAILABLE:
            return None
        self._pause = min(LONGEST_PAUSE, 2 * self._pause)
        return self._pause if self._repeatable and left > 0 else None


def _retry_after(response: Response) -> float:
    """The seconds of the header ``Retry-After``; a date counts as a second."""
    text = response.headers.get("retry-after", "1")
    return float(text) if text.isdigit() else 1.0
