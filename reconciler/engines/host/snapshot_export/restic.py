"""Runs restic: one repository, whose password stays in its file."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from reconciler.errors import EngineError
from reconciler.foreign_words import strip_variation
from reconciler.reasons import Reason
from reconciler.settings import ResticSettings

LIMIT_SECONDS = 6 * 3600.0
"""The longest run of restic; one that hangs must not prevent all later ones."""

_PREFIX = ("setpriv", "--pdeathsig", "KILL", "nice", "-n", "10")
"""A program dies with the daemon: the next one exports the same snapshot again."""
_RESTIC = (*_PREFIX, "restic", "--no-cache", "--quiet", "--json")
_PACK = (*_PREFIX, "tar", "--create", "--sparse", "--format=gnu", ".")
_UNPACK = (*_PREFIX, "tar", "--extract", "--preserve-permissions", "--same-owner", "--numeric-owner")
_ARCHIVE = "/snapshot.tar"
"""The only file of a copy that is an archive."""
_CREDENTIALS = re.compile(r"(//)[^/@\s]+@")
_ADVICE = (
    ("wrong password or no key found", "the password in {password} does not open {repository}"),
    ("already locked", "{repository} is locked by another restic: if none runs, run `restic unlock`"),
    ("repository at the following location", "there is no repository at {repository}: create it with `restic init`"),
    ("unable to open config file", "there is no repository at {repository}: create it with `restic init`"),
    ("no space left on device", "the disk of {repository} is full"),
)


class Copy(msgspec.Struct, frozen=True):
    """A copy in a repository, as restic lists it."""

    id: str
    time: str
    paths: tuple[str, ...] = ()

    @property
    def is_archive(self) -> bool:
        """Whether it is one archive in place of the files."""
        return self.paths == (_ARCHIVE,)


class _Ended(NamedTuple):
    code: int
    output: bytes
    errors: str


class Restic:
    """A repository of restic. All methods raise EngineError with the reason ExportFailed."""

    def __init__(self, settings: ResticSettings) -> None:
        self._settings = settings

    async def back_up(self, folder: Path, host: str, tags: Sequence[str]) -> str:
        """Copy the content of ``folder``; returns the id of the copy."""
        return _parse_copy_id(
            await self._run("backup", "--host", host, *_format_tag_arguments(tags), ".", folder=folder)
        )

    async def back_up_archive(self, folder: Path, host: str, tags: Sequence[str]) -> str:
        """Copy the content of ``folder`` as one archive, without the holes of its files; returns the id of the copy."""
        words = ("backup", "--host", host, *_format_tag_arguments(tags), "--stdin", "--stdin-filename", _ARCHIVE)
        with _open_pipe() as (read, write):
            restic = await self._start(*words, stdin=read)
            packing = await _start_program(*_PACK, cwd=folder, stdout=write)
        return _parse_copy_id(await self._end_both(packing, restic, restic))

    async def find(self, tag: str) -> Copy | None:
        """The newest copy with ``tag``, None if there is none."""
        listed = await self._run("snapshots", "--tag", tag)
        copies = msgspec.json.decode(listed or b"null", type=list[Copy] | None)
        return max(copies, key=lambda copy: copy.time) if copies else None

    async def restore(self, copy: Copy, target: Path) -> None:
        """Write the content of ``copy`` into ``target``."""
        if not copy.is_archive:
            await self._run("restore", copy.id, "--target", str(target))
            return
        with _open_pipe() as (read, write):
            restic = await self._start("dump", copy.id, _ARCHIVE, stdout=write)
            unpacking = await _start_program(*_UNPACK, cwd=target, stdin=read)
        await self._end_both(restic, unpacking, restic)

    async def _run(self, *words: str, folder: Path | None = None) -> bytes:
        ended = await _wait_for_end(await self._start(*words, cwd=folder))
        if ended.code:
            raise _make_export_error(self._explain(ended))
        return ended.output

    async def _start(self, *words: str, **options: Any) -> Process:
        if shutil.which("restic") is None:
            raise _make_export_error("restic is not installed: apt-get install restic")
        if not os.access(self._settings.password_file, os.R_OK):
            raise _make_export_error(f"the file of the password, {self._settings.password_file}, cannot be read")
        return await _start_program(*_RESTIC, *words, env=self._environment(), **options)

    async def _end_both(self, writer: Process, reader: Process, restic: Process) -> bytes:
        """Wait for two programs, the one reading what the other writes; returns the output of the reader."""
        ends = await asyncio.gather(_wait_for_end(writer), _wait_for_end(reader))
        # One that writes to a program that failed is not the cause.
        failed = [pair for pair in zip((writer, reader), ends, strict=True) if pair[1].code not in (0, -signal.SIGPIPE)]
        for program, ended in sorted(failed, key=lambda pair: pair[0] is not restic):
            raise _make_export_error(
                self._explain(ended) if program is restic else f"tar failed: {_get_last_line(ended.errors)}"
            )
        return ends[1].output

    def _environment(self) -> dict[str, str]:
        """The keys of a cloud are in the environment of the daemon; arguments, which all users see, have no secret."""
        settings = self._settings
        own = {"RESTIC_REPOSITORY": settings.repository, "RESTIC_PASSWORD_FILE": str(settings.password_file)}
        return {**os.environ, "LC_ALL": "C", **own}

    def _explain(self, ended: _Ended) -> str:
        repository = _without_credentials(self._settings.repository)
        for sign, advice in _ADVICE:
            if sign in ended.errors:
                return advice.format(repository=repository, password=self._settings.password_file)
        last = _get_last_line(ended.errors)
        return f"restic failed: {_without_credentials(last)}" if last else f"restic failed with {ended.code}"


async def _start_program(*command: str, **options: Any) -> Process:
    streams = {"stdin": DEVNULL, "stdout": PIPE, "stderr": PIPE, **options}
    return await asyncio.create_subprocess_exec(*command, **streams)


async def _wait_for_end(program: Process) -> _Ended:
    """Wait for the end of a program, and end it with the caller."""
    try:
        async with asyncio.timeout(LIMIT_SECONDS):
            output, errors = await program.communicate()
    except TimeoutError:
        raise _make_export_error(f"restic did not end within {LIMIT_SECONDS / 3600:g} hours") from None
    finally:
        if program.returncode is None:
            program.kill()
    return _Ended(program.returncode or 0, output or b"", errors.decode(errors="replace"))


@contextmanager
def _open_pipe() -> Iterator[tuple[int, int]]:
    """The ends of a pipe for two programs."""
    ends = os.pipe()
    try:
        yield ends
    finally:
        for end in ends:
            os.close(end)


def _format_tag_arguments(tags: Sequence[str]) -> list[str]:
    return [word for tag in tags for word in ("--tag", tag)]


def _parse_copy_id(output: bytes) -> str:
    """The id of the copy that restic reports."""
    return next(
        (str(document["snapshot_id"]) for document in _parse_json_lines(output) if "snapshot_id" in document), ""
    )


def _get_last_line(errors: str) -> str:
    """The last line of what a program wrote, without what each try has anew."""
    lines = [line.strip() for line in errors.splitlines() if line.strip()]
    return strip_variation(lines[-1])[:300] if lines else ""


def _parse_json_lines(output: bytes) -> list[dict[str, Any]]:
    return [msgspec.json.decode(line) for line in output.splitlines() if line.startswith(b"{")]


def _without_credentials(text: str) -> str:
    return _CREDENTIALS.sub(r"\1***@", text)


def _make_export_error(message: str) -> EngineError:
    return EngineError(message, reason=Reason.EXPORT_FAILED)
