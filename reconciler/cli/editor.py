"""Lets a person edit text that may be secret, and writes files atomically; no plain text stays behind."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

import click

from reconciler.documents.limits import read_within
from reconciler.errors import RefusedError, UsageError
from reconciler.terminal.editor import INTERRUPTED, run_editor

EDITORS = ("VISUAL", "EDITOR")
"""Variables that name the editor; the first set one counts."""
SOPS_EDITORS = ("SOPS_EDITOR", *EDITORS)
"""Those for encrypted files, as for sops."""

_IN_MEMORY = Path("/dev/shm")
_ENDINGS = (signal.SIGTERM, signal.SIGHUP)


@contextmanager
def open_editor(name: str, text: bytes) -> Iterator[Iterator[bytes]]:
    """Yield versions of ``text`` from an editor; take the next where a version cannot be used.

    They end when the user declines to edit again, or there is no terminal. Raises UsageError where no editor starts.
    """
    with _make_private_directory() as room:
        path = room / name
        _write_private_file(path, text)
        yield _iterate_versions(path)


@contextmanager
def open_text_editor(name: str) -> Iterator[Callable[[str], str]]:
    """Yield a function that shows a text in an editor, and returns what a person makes of it.

    It raises UsageError where no editor starts, and RefusedError where it fails. Raises UsageError without a terminal
    for an editor that nobody has named.
    """
    if not sys.stdout.isatty() and not any(map(os.environ.get, EDITORS)):
        raise UsageError("there is no terminal for an editor: set EDITOR, or use `reconciler patch`")
    with _make_private_directory() as room:
        path = room / name

        def edit_text(text: str) -> str:
            _write_private_file(path, text.encode())
            _edit_file(path, EDITORS)
            try:
                return _read_edited_file(path).decode()
            except UnicodeDecodeError:
                raise RefusedError("the editor wrote no UTF-8, so nothing was changed") from None

        yield edit_text


def replace_file(path: Path, before: bytes, after: bytes) -> None:
    """Write ``after`` to ``path`` atomically, with its former mode and owner.

    Raises RefusedError where the file no longer holds ``before``, UsageError where it cannot be written.
    """
    real = path.resolve()
    try:
        if read_within(real) != before:
            raise RefusedError(f"{path} was changed by another program meanwhile, and is not written")
        number, fresh = tempfile.mkstemp(prefix=f".{real.name}.", dir=real.parent)
        try:
            with open(number, "wb") as file:
                file.write(after)
                file.flush()
                os.fsync(number)
            shutil.copymode(real, fresh)
            with suppress(PermissionError):
                os.chown(fresh, real.stat().st_uid, real.stat().st_gid)
            Path(fresh).replace(real)
        except BaseException:
            Path(fresh).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror or error}") from None


def _iterate_versions(path: Path) -> Iterator[bytes]:
    while True:
        _edit_file(path, SOPS_EDITORS)
        yield _read_edited_file(path)
        if not sys.stdin.isatty() or not click.confirm("Edit it again?", default=True, err=True):
            return


def _write_private_file(path: Path, content: bytes) -> None:
    with open(path, "wb", opener=lambda filename, flags: os.open(filename, flags, 0o600)) as file:
        file.write(content)


def _read_edited_file(path: Path) -> bytes:
    try:
        return read_within(path)
    except OSError:
        raise RefusedError("the editor removed the file, so nothing was changed") from None


def _edit_file(path: Path, variables: Sequence[str]) -> None:
    words = shlex.split(next((os.environ[name] for name in variables if os.environ.get(name)), "vi"))
    try:
        code = run_editor(words, path)
    except OSError as error:
        raise UsageError(f"the editor {words[0]} does not start: {error.strerror}; name another in $EDITOR") from None
    if code in INTERRUPTED:
        click.echo("\nnothing was changed", err=True)
        raise KeyboardInterrupt
    if code:
        raise RefusedError(f"the editor ended with code {code}, so nothing was changed")


@contextmanager
def _make_private_directory() -> Iterator[Path]:
    """A directory for this user alone, in memory where possible; removed afterwards, even after a signal."""
    base = next(
        (path for path in (_find_runtime_directory(), _IN_MEMORY) if path is not None and os.access(path, os.W_OK)),
        None,
    )
    before = {number: signal.signal(number, _exit_on_signal) for number in _ENDINGS}
    room = Path(tempfile.mkdtemp(prefix="reconciler-", dir=base))
    try:
        yield room
    finally:
        shutil.rmtree(room, ignore_errors=True)
        for number, action in before.items():
            with suppress(TypeError):
                signal.signal(number, action)


def _find_runtime_directory() -> Path | None:
    path = os.environ.get("XDG_RUNTIME_DIR")
    return Path(path) if path else None


def _exit_on_signal(number: int, _frame: FrameType | None) -> None:
    sys.exit(128 + number)
