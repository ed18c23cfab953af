"""What systemd is told: ready, busy with what, stopping, and still getting on (sd_notify(3), in the stdlib)."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Mapping

from reconciler.clock import Clock


class SystemdNotifier:
    """Sends states to the service manager; does nothing where ``NOTIFY_SOCKET`` is not set.

    Never raises and never blocks: a daemon that cannot report still has its work to do.
    """

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        address = environ.get("NOTIFY_SOCKET", "")
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self.watchdog_seconds = _watchdog_seconds(environ)

    def ready(self, status: str = "") -> None:
        """The daemon has started, or has finished reloading."""
        self._send("READY=1", status)

    def status(self, status: str) -> None:
        """One line for ``systemctl status``."""
        self._send("", status)

    def reloading(self, clock: Clock) -> None:
        """The settings are being read anew; ``ready`` ends it."""
        self._send(f"RELOADING=1\nMONOTONIC_USEC={int(clock.monotonic() * 1_000_000)}", "")

    def stopping(self, status: str = "") -> None:
        """The daemon is on its way out."""
        self._send("STOPPING=1", status)

    def alive(self) -> None:
        """Feed the watchdog."""
        self._send("WATCHDOG=1", "")

    def _send(self, state: str, status: str) -> None:
        if not self._address:
            return
        lines = [state] if state else []
        if status:
            lines.append("STATUS=" + " ".join(status.split()))
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out:
            out.setblocking(False)
            out.connect(self._address)
            out.send("\n".join(lines).encode())


class Watchdog:
    """Feeds the service manager's watchdog only while the loop gets on, so that a hung run is restarted.

    The loop calls ``progress`` at every step of real work and ``idle`` before it waits for a wake-up; a timer calls
    ``ping`` every ``interval`` seconds. ``interval`` is 0 where no watchdog is asked for.
    """

    def __init__(self, notifier: SystemdNotifier, clock: Clock, limit: float = 0.0) -> None:
        self._notifier = notifier
        self._clock = clock
        self._limit = limit or notifier.watchdog_seconds
        self._last = clock.monotonic()
        self._resting = False
        self.interval = notifier.watchdog_seconds / 3

    def progress(self) -> None:
        """Something got done just now."""
        self._last = self._clock.monotonic()
        self._resting = False

    def idle(self) -> None:
        """Nothing is to be done until the next wake-up, which counts as getting on."""
        self._resting = True

    def is_alive(self) -> bool:
        """Whether the loop rests, or got something done within the limit."""
        return self._resting or self._clock.monotonic() - self._last <= self._limit

    def ping(self) -> None:
        """Feed the watchdog, unless the loop hangs."""
        if self.is_alive():
            self._notifier.alive()


def _watchdog_seconds(environ: Mapping[str, str]) -> float:
    """How long the service manager waits for a sign of life; 0 where it does not, or waits for another process."""
    usec, pid = environ.get("WATCHDOG_USEC", ""), environ.get("WATCHDOG_PID", "")
    if not usec.isdecimal() or (pid and pid != str(os.getpid())):
        return 0.0
    return int(usec) / 1_000_000
