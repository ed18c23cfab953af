"""Messages to the service manager."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from reconciler.clock import SystemClock
from reconciler.daemon.systemd import SystemdNotifier, Watchdog


class StoppedClock(SystemClock):
    """A clock that a test sets."""

    time = 100.0

    def monotonic(self) -> float:
        return self.time


@contextmanager
def service_manager(address: str) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind("\0" + address[1:] if address.startswith("@") else address)
        receiver.setblocking(False)
        yield receiver


def received(receiver: socket.socket) -> list[str]:
    messages = []
    while True:
        try:
            messages.append(receiver.recv(4096).decode())
        except BlockingIOError:
            return messages


@pytest.mark.parametrize("form", ["a file", "an abstract name"])
def test_the_service_manager_hears_every_state(tmp_path: Path, form: str) -> None:
    address = str(tmp_path / "notify") if form == "a file" else f"@reconciler-test-{os.getpid()}"
    with service_manager(address) as receiver:
        notifier = SystemdNotifier({"NOTIFY_SOCKET": address})
        notifier.ready("main@sha1:1234")
        notifier.status("applying\n3 of 5")
        before = time.monotonic()
        notifier.reloading()
        after = time.monotonic()
        notifier.stopping()
        ready, status, reloading, stopping = received(receiver)
        assert (ready, status, stopping) == (
            "READY=1\nSTATUS=main@sha1:1234",
            "STATUS=applying 3 of 5",
            "STOPPING=1",
        )
        word, _, usec = reloading.partition("\nMONOTONIC_USEC=")
        assert word == "RELOADING=1"
        assert int(before * 1_000_000) <= int(usec) <= after * 1_000_000


@pytest.mark.parametrize("environ", [{}, {"NOTIFY_SOCKET": "/nowhere/at/all"}])
def test_a_missing_service_manager_is_no_error(environ: dict[str, str]) -> None:
    SystemdNotifier(environ).ready("up")


def test_a_full_socket_does_not_block(tmp_path: Path) -> None:
    with service_manager(str(tmp_path / "notify")):
        notifier = SystemdNotifier({"NOTIFY_SOCKET": str(tmp_path / "notify")})
        for _ in range(2_000):
            notifier.status("busy")


@pytest.mark.parametrize(
    ("environ", "seconds"),
    [
        ({"WATCHDOG_USEC": "60000000"}, 60.0),
        ({"WATCHDOG_USEC": "500000", "WATCHDOG_PID": "OURS"}, 0.5),
        ({"WATCHDOG_USEC": "60000000", "WATCHDOG_PID": "1"}, 0.0),
        ({"WATCHDOG_USEC": "soon"}, 0.0),
        ({}, 0.0),
    ],
)
def test_the_watchdog_interval_is_what_the_service_manager_asks_of_this_process(
    environ: dict[str, str], seconds: float
) -> None:
    asked = {name: value.replace("OURS", str(os.getpid())) for name, value in environ.items()}
    assert SystemdNotifier(asked).watchdog_seconds == seconds


def test_the_watchdog_is_fed_only_while_the_loop_gets_on(tmp_path: Path) -> None:
    with service_manager(str(tmp_path / "notify")) as receiver:
        clock = StoppedClock()
        notifier = SystemdNotifier({"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "60000000"})
        watchdog = Watchdog(notifier, clock)
        assert watchdog.interval == 20.0
        clock.time += 60
        watchdog.ping()
        assert received(receiver) == ["WATCHDOG=1"]
        clock.time += 1
        watchdog.ping()
        assert received(receiver) == [], "a run that hangs must be restarted"
        watchdog.progress()
        watchdog.ping()
        assert received(receiver) == ["WATCHDOG=1"]


def test_waiting_for_a_wake_up_counts_as_getting_on(tmp_path: Path) -> None:
    with service_manager(str(tmp_path / "notify")) as receiver:
        clock = StoppedClock()
        notifier = SystemdNotifier({"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "60000000"})
        watchdog = Watchdog(notifier, clock)
        watchdog.idle()
        clock.time += 3_600
        watchdog.ping()
        assert received(receiver) == ["WATCHDOG=1"]
        watchdog.progress()
        clock.time += 61
        watchdog.ping()
        assert received(receiver) == []
