"""Relays between a session and this terminal, or these pipes, until the program ends."""

from __future__ import annotations

import asyncio
import os
import signal
import termios
import tty
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress

from reconciler.tasks import cancel_and_wait
from reconciler.terminal.descriptors import read_some, write_all
from reconciler.terminal.session import ExecSession, TerminalSize

_STDIN, _STDOUT = 0, 1
_ENDING = (signal.SIGTERM, signal.SIGHUP)
_OWNER = "exec"

Open = Callable[[TerminalSize | None], Awaitable[ExecSession]]
"""Starts the program, on a terminal of that size or (None) with pipes."""


def has_terminal() -> bool:
    """Whether stdin and stdout are a terminal."""
    return os.isatty(_STDIN) and os.isatty(_STDOUT)


def run_program(open_session: Open, *, on_terminal: bool, with_input: bool = True) -> int:
    """Connect stdin, stdout and stderr with a program until it ends, and return its exit code. Raises its errors.

    ``on_terminal`` is whether it gets a terminal. One of ours then passes on every key, also Ctrl-C, and changes of its
    size. Without ``with_input`` the program finds the end of its input at once.
    """
    return asyncio.run(_run_session(open_session, on_terminal, with_input))


async def _run_session(open_session: Open, on_terminal: bool, with_input: bool) -> int:
    size = _read_terminal_size() if on_terminal else None
    session = await open_session(size)
    passes_keys = on_terminal and with_input and os.isatty(_STDIN)
    try:
        with _raw_mode(_STDIN) if passes_keys else nullcontext(), _relay_resizes(session, size):
            return await _until_ended(session, with_input)
    finally:
        await session.close()


async def _until_ended(session: ExecSession, with_input: bool) -> int:
    """Relay until the program ends, or a signal ends this one: then the terminal is still restored."""
    loop = asyncio.get_running_loop()
    ending: asyncio.Future[int] = loop.create_future()

    def end(number: int) -> None:
        if not ending.done():
            ending.set_result(number)

    for number in _ENDING:
        loop.add_signal_handler(number, end, number)
    relaying = asyncio.create_task(_relay_session(session, with_input))
    try:
        await asyncio.wait((relaying, ending), return_when=asyncio.FIRST_COMPLETED)
        return 128 + ending.result() if ending.done() else relaying.result()
    finally:
        await cancel_and_wait([relaying], _OWNER)


async def _relay_session(session: ExecSession, with_input: bool) -> int:
    feeding = asyncio.create_task(_feed_stdin(session) if with_input else session.close_stdin())
    try:
        while (output := await session.read()) is not None:
            await write_all(output.channel, output.content)
        return await session.wait()
    finally:
        await cancel_and_wait([feeding], _OWNER)


async def _feed_stdin(session: ExecSession) -> None:
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
def _relay_resizes(session: ExecSession, size: TerminalSize | None) -> Iterator[None]:
    """Pass on changes of the terminal's size since it was ``size``, that of the program (None: it has no terminal)."""
    loop = asyncio.get_running_loop()
    resizing: set[asyncio.Task[None]] = set()

    def resize() -> None:
        task = loop.create_task(session.resize(_read_terminal_size()))
        resizing.add(task)
        task.add_done_callback(resizing.discard)

    loop.add_signal_handler(signal.SIGWINCH, resize)
    if size is not None and size != _read_terminal_size():
        # It changed while the program was started, when no handler was there.
        resize()
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGWINCH)


def _read_terminal_size() -> TerminalSize:
    """The size of our terminal; the usual one without a terminal, or where it does not know its size."""
    for descriptor in (_STDOUT, _STDIN):
        with suppress(OSError):
            size = os.get_terminal_size(descriptor)
            if size.lines and size.columns:
                return TerminalSize(size.lines, size.columns)
    return TerminalSize()
