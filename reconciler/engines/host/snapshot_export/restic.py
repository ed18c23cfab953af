"""Runs restic: one repository, whose password stays in its file."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from reconciler.errors import EngineError
from reconciler.reasons import Reason
from reconciler.settings import ResticSettings

LIMIT_SECONDS = 6 * 3600.0
"""The longest run of restic; one that hangs must not prevent all later ones."""

_COMMAND = ("setpriv", "--pdeathsig", "KILL", "nice", "-n", "10", "restic", "--no-cache", "--quiet", "--json")
"""It dies with the daemon: the next one exports the same snapshot again."""
_CREDENTIALS = re.compile(r"(//)[^/@\s]+@")
_ADVICE = (
    ("wrong password or no key found", "the password in {password} does not open {repository}"),
    ("already locked", "{repository} is locked by another restic: if none runs, run `restic unlock`"),
    ("repository at the following location", "there is no repository at {repository}: create it with `restic init`"),
    ("unable to open config file", "there is no repository at {repository}: create it with `restic init`"),
    ("no space left on device", "the disk of {repository} is full"),
)


class Restic:
    """A repository of restic. All methods raise EngineError with the reason ExportFailed."""

    def __init__(self, settings: ResticSettings) -> None:
        self._settings = settings

    async def back_up(self, folder: Path, host: str, tags: Sequence[str]) -> str:
        """Copy the content of ``folder``; returns the id of the copy."""
        marks = [word for tag in tags for word in ("--tag", tag)]
        output = await self._run("backup", "--host", host, *marks, ".", folder=folder)
        return next((str(each["snapshot_id"]) for each in _documents(output) if "snapshot_id" in each), "")

    async def find(self, tag: str) -> str:
        """The id of the newest copy with ``tag``, "" if there is none."""
        found = msgspec.json.decode(await self._run("snapshots", "--tag", tag) or b"null") or []
        return str(max(found, key=lambda each: str(each["time"]))["id"]) if found else ""

    async def restore(self, copy: str, target: Path) -> None:
        """Write the content of ``copy`` into ``target``."""
        await self._run("restore", copy, "--target", str(target))

    async def _run(self, *words: str, folder: Path | None = None) -> bytes:
        if shutil.which("restic") is None:
            raise _failed("restic is not installed: apt-get install restic")
        if not os.access(self._settings.password_file, os.R_OK):
            raise _failed(f"the file of the password, {self._settings.password_file}, cannot be read")
        program = await asyncio.create_subprocess_exec(
            *_COMMAND,
            *words,
            cwd=folder,
            env=self._environment(),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            async with asyncio.timeout(LIMIT_SECONDS):
                output, errors = await program.communicate()
        except TimeoutError:
            raise _failed(f"restic did not end within {LIMIT_SECONDS / 3600:g} hours") from None
        finally:
            if program.returncode is None:
                program.kill()
        if program.returncode:
            raise _failed(self._explain(errors.decode(errors="replace"), program.returncode))
        return output

    def _environment(self) -> dict[str, str]:
        """The keys of a cloud are in the environment of the daemon; arguments, which all users see, have no secret."""
        settings = self._settings
        own = {"RESTIC_REPOSITORY": settings.repository, "RESTIC_PASSWORD_FILE": str(settings.password_file)}
        return {**os.environ, "LC_ALL": "C", **own}

    def _explain(self, errors: str, code: int) -> str:
        repository = _without_credentials(self._settings.repository)
        for sign, advice in _ADVICE:
            if sign in errors:
                return advice.format(repository=repository, password=self._settings.password_file)
        lines = [line.strip() for line in errors.splitlines() if line.strip()]
        return f"restic failed: {_without_credentials(lines[-1])[:300]}" if lines else f"restic failed with {code}"


def _documents(output: bytes) -> list[dict[str, Any]]:
    return [msgspec.json.decode(line) for line in output.splitlines() if line.startswith(b"{")]


def _without_credentials(text: str) -> str:
    return _CREDENTIALS.sub(r"\1***@", text)


def _failed(message: str) -> EngineError:
    return EngineError(message, reason=Reason.EXPORT_FAILED)
