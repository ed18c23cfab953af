"""Connects this terminal, or these pipes, with a program inside a container."""

from __future__ import annotations

import asyncio
import os
import signal
import termios
import tty
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress

from reconciler.engines.host.runtimes.descriptors import read_some, write_all
from reconciler.engines.host.runtimes.session import ExecSession, TerminalSize
from reconciler.tasks import cancel_and_wait

_STDIN, _STDOUT = 0, 1
_ENDING = (signal.SIGTERM, signal.SIGHUP)
_OWNER = "reconciler exec"

Open = Callable[[TerminalSize | None], Awaitable[ExecSession]]
"""Starts the program, on a terminal of that size or (None) with pipes."""


def run_program(open_session: Open, on_terminal: bool | None) -> int:
    """Connect stdin, stdout and stderr with a program until it ends, and return its exit code. Raises EngineError.

    ``on_terminal`` is whether it gets a terminal; None: if stdin and stdout are one. A terminal of ours passes on every
    key, also Ctrl-C, and changes of its size.
    """
    ours = os.isatty(_STDIN) and os.isatty(_STDOUT)
    return asyncio.run(_run(open_session, ours if on_terminal is None else on_terminal))


async def _run(open_session: Open, on_terminal: bool) -> int:
    size = _size() if on_terminal else None
    session = await open_session(size)
    try:
        with _raw_mode(_STDIN) if on_terminal and os.isatty(_STDIN) else nullcontext(), _resized(session, size):
            return await _until_ended(session)
    finally:
        await session.close()


async def _until_ended(session: ExecSession) -> int:
    """Relay until the program ends, or a signal ends this one: then the terminal is still restored."""
    loop = asyncio.get_running_loop()
    ending: asyncio.Future[int] = loop.create_future()

    def end(number: int) -> None:
        if not ending.done():
            ending.set_result(number)

    for number in _ENDING:
        loop.add_signal_handler(number, end, number)
    relaying = asyncio.create_task(_relay(session))
    try:
        await asyncio.wait((relaying, ending), return_when=asyncio.FIRST_COMPLETED)
        return 128 + ending.result() if ending.done() else relaying.result()
    finally:
        await cancel_and_wait([relaying], _OWNER)


async def _relay(session: ExecSession) -> int:
    feeding = asyncio.create_task(_feed(session))
    try:
        while (output := await session.read()) is not None:
            await write_all(output.channel, output.content)
        return await session.wait()
    finally:
        await cancel_and_wait([feeding], _OWNER)


async def _feed(session: ExecSession) -> None:
    """Pass on stdin to its end, or until the program no longer reads."""
    try:
        while content := await read_some(_STDIN):
            await session.write(content)
    except BrokenPipeError:
        return
    except OSError:  # the terminal is gone, or stdin is closed
        pass
    await session.close_stdin()


@contextmanager
def _raw_mode(terminal: int) -> Iterator[None]:
    before = termios.tcgetattr(terminal)
    tty.setraw(terminal, termios.TCSADRAIN)
    try:
        yield
    finally:
        with suppress(termios.error):
            termios.tcsetattr(terminal, termios.TCSADRAIN, before)


@contextmanager
def _resized(session: ExecSession, size: TerminalSize | None) -> Iterator[None]:
    """Pass on changes of the terminal's size since it was ``size``, that of the program (None: it has no terminal)."""
    loop = asyncio.get_running_loop()
    resizing: set[asyncio.Task[None]] = set()

    def resize() -> None:
        task = loop.create_task(session.resize(_size()))
        resizing.add(task)
        task.add_done_callback(resizing.discard)

    loop.add_signal_handler(signal.SIGWINCH, resize)
    if size is not None and size != _size():
        # It changed while the program was started, when no handler was there.
        resize()
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGWINCH)


def _size() -> TerminalSize:
    """The size of our terminal; the usual one without a terminal, or where it does not know its size."""
    for descriptor in (_STDOUT, _STDIN):
        with suppress(OSError):
            found = os.get_terminal_size(descriptor)
            if found.lines and found.columns:
                return TerminalSize(found.lines, found.columns)
    return TerminalSize()
