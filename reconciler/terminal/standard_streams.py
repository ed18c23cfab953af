"""The standard streams of a command, whatever its caller has made of them."""

from __future__ import annotations

import os
import sys
from io import TextIOWrapper

from reconciler.printable import guard_stream

_MODES = {"stdin": "r", "stdout": "w", "stderr": "w"}
"""The streams in the order of their descriptors."""


def prepare_streams() -> None:
    """Open the streams that are closed, and let no text that is printed fail or control the terminal."""
    open_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
            guard_stream(stream)


def open_closed_streams() -> None:
    """Open /dev/null for each standard stream that the caller has closed, as Git does.

    Else the next file or connection would get its descriptor.
    """
    for name, mode in _MODES.items():
        if getattr(sys, name) is None:
            # The lowest descriptor that is free: that of this stream, since those before it are open.
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode, encoding="utf-8"))
