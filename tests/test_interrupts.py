"""Ctrl-C ends a read that waits for ever, also if it came just before the read."""

from __future__ import annotations

import subprocess
import sys

MISSED = """
import os, signal, socket, threading
from reconciler.terminal.interrupts import heed_interrupts

begun = threading.Event()

def interrupt():
    # Of all threads, only this one takes the signal: the read of the other one goes on, as after a signal just before.
    begun.wait()
    os.kill(os.getpid(), signal.SIGINT)
    threading.Event().wait()

threading.Thread(target=interrupt, daemon=True).start()
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
reading, writing = socket.socketpair()
try:
    with heed_interrupts():
        begun.set()
        reading.recv(1)
except KeyboardInterrupt:
    print("interrupted", signal.getsignal(signal.SIGALRM) is signal.SIG_DFL, signal.getitimer(signal.ITIMER_REAL))
    os._exit(0 if not os.sys.stdout.flush() else 1)
"""
WHOLE = """
import socket, threading, time
from reconciler.terminal.interrupts import heed_interrupts

reading, writing = socket.socketpair()
threading.Timer(2.5, lambda: writing.sendall(b"a line\\n")).start()
with heed_interrupts(), reading.makefile("rb") as lines:
    print(lines.readline())
"""


def test_an_interrupt_that_came_just_before_a_read_ends_it() -> None:
    ended = subprocess.run([sys.executable, "-c", MISSED], capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout) == (0, "interrupted True (0.0, 0.0)\n"), ended


def test_a_read_goes_on_after_an_alarm() -> None:
    ended = subprocess.run([sys.executable, "-c", WHOLE], capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout) == (0, "b'a line\\n'\n"), ended
