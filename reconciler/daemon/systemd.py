"""Notifies systemd: ready, status, stopping and watchdog (sd_notify(3), with the standard library only)."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Mapping

from reconciler.clock import Clock


class SystemdNotifier:
    """Sends states to the service manager; does nothing if ``NOTIFY_SOCKET`` is not set.

    Never raises and never blocks, since the daemon works without it too.
    """

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        address = environ.get("NOTIFY_SOCKET", "")
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self.watchdog_seconds = _watchdog_seconds(environ)

    def ready(self, status: str = "") -> None:
        """Report that the daemon has started, or has finished reloading."""
        self._send("READY=1", status)

    def status(self, status: str) -> None:
        """Set the status line of ``systemctl status``."""
        self._send("", status)

    def reloading(self) -> None:
        """Report that the daemon reloads its settings; ``ready`` ends it."""
        # systemd compares it with CLOCK_MONOTONIC, which does not count while the machine is suspended.
        self._send(f"RELOADING=1\nMONOTONIC_USEC={int(time.monotonic() * 1_000_000)}", "")

    def stopping(self, status: str = "") -> None:
        """Report that the daemon stops."""
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
    """Feeds the service manager's watchdog only while the loop makes progress, so that a hung daemon is restarted.

    The loop calls ``progress`` at every step of real work and ``idle`` before it waits for a wake-up; a timer calls
    ``ping`` every ``interval`` seconds. ``interval`` is 0 if the unit sets no watchdog.
    """

    def __init__(self, notifier: SystemdNotifier, clock: Clock, limit: float = 0.0) -> None:
        self._notifier = notifier
        self._clock = clock
        self._limit = limit or notifier.watchdog_seconds
        self._last = clock.monotonic()
        self._resting = False
        self.interval = notifier.watchdog_seconds / 3

    def progress(self) -> None:
        """Record progress."""
        self._last = self._clock.monotonic()
        self._resting = False

    def idle(self) -> None:
        """Record that the loop waits for a wake-up, which counts as progress."""
        self._resting = True

    def is_alive(self) -> bool:
        """Whether the loop is idle, or made progress within the limit."""
        return self._resting or self._clock.monotonic() - self._last <= self._limit

    def ping(self) -> None:
        """Feed the watchdog, unless the loop hangs."""
        if self.is_alive():
            self._notifier.alive()


def _watchdog_seconds(environ: Mapping[str, str]) -> float:
    """The watchdog timeout of the service manager; 0 if it has none, or watches another process."""
    usec, pid = environ.get("WATCHDOG_USEC", ""), environ.get("WATCHDOG_PID", "")
    if not usec.isdecimal() or (pid and pid != str(os.getpid())):
        return 0.0
    return int(usec) / 1_000_000
