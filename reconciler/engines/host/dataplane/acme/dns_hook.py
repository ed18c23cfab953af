"""Records of DNS for challenges (dns-01), set and removed by a program that the settings name.

It gets ``present`` or ``cleanup``, the name of a TXT record and its value, and ends with code 0 when that is so. What
it has set is in a file until it is removed: an order that is killed leaves nothing behind.
"""

from __future__ import annotations

import os
import resource
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from reconciler.engines.host.disk.atomic import write_atomic
from reconciler.foreign_words import strip_variation
from reconciler.printable import truncate_text

SECONDS = 60.0
"""Seconds until the program is ended."""
PRESENT, CLEANUP = "present", "cleanup"

_decode = msgspec.json.Decoder(tuple[tuple[str, str], ...]).decode


@contextmanager
def present_record(hook: Sequence[str], file: Path, name: str, value: str) -> Iterator[None]:
    """Serve a TXT record meanwhile. Raises ValueError if the program fails to set it, and EngineError."""
    # Before it is set: it may be, although the program fails.
    _write_records(file, [*read_presented(file), (name, value)])
    try:
        if problem := run_hook(hook, PRESENT, name, value):
            raise ValueError(f"the record {name} could not be set: {problem}")
        yield
    finally:
        remove_presented(hook, file)


def read_presented(file: Path) -> list[tuple[str, str]]:
    """The records that are set, each with its value."""
    with suppress(OSError, msgspec.DecodeError):
        return list(_decode(file.read_bytes()))
    return []


def remove_presented(hook: Sequence[str], file: Path) -> str:
    """Remove the records in ``file``; the first problem, "" if there is none. Those that stay are tried again later.

    Raises EngineError.
    """
    records = read_presented(file)
    problems = {record: run_hook(hook, CLEANUP, *record) for record in records}
    left = [record for record in records if problems[record]]
    if left != records:
        _write_records(file, left)
    return next((problems[pair] for pair in left), "")


def run_hook(hook: Sequence[str], *words: str) -> str:
    """Why the program failed; "" if it succeeded. Blocks for at most a minute."""
    try:
        with _whole_memory():
            process = subprocess.Popen(
                [*hook, *words],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
    except OSError as error:
        return f"{hook[0]} cannot be run: {error.strerror}"
    try:
        output, _ = process.communicate(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return f"{hook[0]} did not end within {SECONDS:g} s"
    finally:
        # Also what it has left behind.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    if process.returncode == 0:
        return ""
    last = strip_variation(output.decode(errors="replace").strip().rpartition("\n")[2])
    return truncate_text(f"{hook[0]} ended with code {process.returncode}{f': {last}' if last else ''}")


@contextmanager
def _whole_memory() -> Iterator[None]:
    """A program that begins now has not the limit of the process of an order."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    if soft == hard:
        yield
        return
    resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def _write_records(file: Path, records: Sequence[tuple[str, str]]) -> None:
    write_atomic(file, msgspec.json.encode(records), 0o600)
