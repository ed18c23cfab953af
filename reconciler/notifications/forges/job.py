"""The plan of a pull request, made by a process of its own: what it is asked, what it answers, and how it is run."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from pathlib import Path
from typing import Any

import msgspec

from reconciler.model.finding import Finding
from reconciler.settings import Settings
from reconciler.tasks import wait_or_kill

MODULE = "reconciler.review.pull_request"
SECONDS = 300.0
"""Seconds after which a plan is given up."""
FORK_SECONDS = 120.0
"""The same for a pull request of a fork, which anybody can make."""
MOST_BYTES = 4 * 1024 * 1024
"""The most bytes of an answer."""
_END_SECONDS = 1.0


class PullJob(msgspec.Struct, frozen=True):
    """Plan what merging ``head`` would do to ``source``.

    ``head`` may be the first digits of a commit. ``fetch`` is the ref that has it, "" for none. With ``is_fork``, it is
    planned from Git alone: without secrets, records and locations.
    """

    settings: Settings
    source: str
    number: int
    head: str
    fetch: str
    is_fork: bool


class PullPlan(msgspec.Struct, frozen=True):
    """The plan of a pull request, or the ``problem`` for which there is none.

    ``head``, ``base`` and ``applied`` are full commits: of the pull request, of the branch, and the one that the plan
    is compared with. ``markdown`` is the plan, ``summary`` one line of it. ``changes`` counts its steps, ``waiting``
    those that wait for an approval, which ``approvers`` may give (Markdown). ``findings`` are the first ones.
    ``is_passing``: a later try may succeed.
    """

    head: str = ""
    base: str = ""
    applied: str = ""
    markdown: str = ""
    summary: str = ""
    changes: int = 0
    waiting: int = 0
    approvers: str = ""
    has_errors: bool = False
    findings: tuple[Finding, ...] = ()
    problem: str = ""
    is_passing: bool = False


def encode_job(job: PullJob) -> bytes:
    """``job`` as JSON."""
    return msgspec.json.encode(job, enc_hook=str)


def decode_job(raw: bytes) -> PullJob:
    """The inverse of ``encode_job``."""
    return msgspec.json.decode(raw, type=PullJob, dec_hook=_decode_path)


def _decode_path(_wanted: type, text: Any) -> Path:
    return Path(text)


async def run_job(job: PullJob, seconds: float | None = None) -> PullPlan:
    """The answer to ``job`` by a process of its own, which is ended after ``seconds`` with all that it started."""
    limit = seconds if seconds is not None else FORK_SECONDS if job.is_fork else SECONDS
    # -I and "/": nothing is imported from the daemon's working directory.
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        "-I",
        "-m",
        MODULE,
        cwd="/",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        start_new_session=True,
        limit=MOST_BYTES,
    )
    try:
        async with asyncio.timeout(limit):
            raw = await _ask_child(child, encode_job(job))
            code = await child.wait()
    except TimeoutError:
        return PullPlan(problem=f"planning it took longer than {limit:g} s, so it was given up")
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        await wait_or_kill(child, _END_SECONDS)
    if code or not raw:
        return PullPlan(problem="planning it needs more memory or disk than it may have, or met a bug; see the log")
    try:
        return msgspec.json.decode(raw, type=PullPlan)
    except msgspec.MsgspecError:
        return PullPlan(problem="planning it met a bug; see the log")


async def _ask_child(child: asyncio.subprocess.Process, question: bytes) -> bytes:
    """Give ``question`` to ``child``; return what it answers, b"" if that is too much."""
    assert child.stdin is not None
    assert child.stdout is not None
    with contextlib.suppress(ConnectionError):
        child.stdin.write(question)
        await child.stdin.drain()
    child.stdin.close()
    raw = bytearray()
    while chunk := await child.stdout.read(65_536):
        raw += chunk
        if len(raw) > MOST_BYTES:
            return b""
    return bytes(raw)
