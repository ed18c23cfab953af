"""Fuzzers as child processes: started, watched, and what they found."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from tests.fuzz.oracles import HEAD
from tests.fuzz.planted import PLANTED
from tests.fuzz.seeds import dictionary, write_seeds
from tests.fuzz.targets import TARGETS
from tests.support.mutations import ROOT

HOME = ROOT / "build" / "fuzz"
"""Where inputs that break something are saved, and what a long run has learnt."""
GRACE = 60
"""Seconds to start and to end; a child that writes nothing for longer hangs where even libFuzzer cannot stop it."""

_STATISTIC = re.compile(r"^stat::(number_of_executed_units|peak_rss_mb):\s+(\d+)$", re.MULTILINE)
_PROGRESS = re.compile(r"\bcov: (\d+) ft: \d+ corp: (\d+)/")
_SAVED = re.compile(r"Test unit written to (\S+)")
_RAISED = re.compile(r"=== Uncaught Python exception: ===\n((?:.*\n)+?)\n==", re.MULTILINE)


class Bounds(NamedTuple):
    """What one input may take: seconds on the clock until it counts as a hang, megabytes."""

    seconds: int = 20
    memory: int = 1024


USUAL = Bounds()


class Crasher(NamedTuple):
    """An input that breaks something, and what it breaks; without ``path`` the child ended before its first one."""

    target: str
    path: Path | None
    words: str

    def __str__(self) -> str:
        if self.path is None:
            return f"{self.target}: {self.words}"
        raw = self.path.read_bytes()
        shown = f"{raw[:2000]!r}{' …' if len(raw) > 2000 else ''}"
        again = f"python -m tests.fuzz --reproduce {self.target} {self.path}"
        return f"{self.target}: {self.words.strip()}\ninput: {shown}\nto see it again: {again}"


class Campaign(NamedTuple):
    """What one or more children of a target did."""

    target: str
    runs: int = 0
    seconds: float = 0.0
    coverage: int = 0
    corpus: int = 0
    memory: int = 0
    found: tuple[Crasher, ...] = ()

    def __add__(self, other: object) -> Campaign:
        """Both together; coverage is that of the better one, since they share what they learn."""
        assert isinstance(other, Campaign)
        return Campaign(
            self.target,
            self.runs + other.runs,
            max(self.seconds, other.seconds),
            max(self.coverage, other.coverage),
            max(self.corpus, other.corpus),
            max(self.memory, other.memory),
            self.found + other.found,
        )

    def __str__(self) -> str:
        rate = self.runs / self.seconds if self.seconds else 0
        speed = f"{self.runs:,} runs in {self.seconds:.0f} s, {rate:,.0f} a second"
        learnt = f"{self.coverage:,} edges, {self.corpus:,} inputs in the corpus"
        return f"{self.target}: {speed}; {learnt}, at most {self.memory} MB; {len(self.found)} found"


def missing() -> str:
    """Why there can be no fuzzing here; empty where there can."""
    return "" if find_spec("atheris") else "atheris is not installed; it has wheels for Linux on x86-64 only"


class FuzzWorkspace:
    """Where the children of one target find their seeds, share what they learn, and leave what breaks."""

    def __init__(self, target: str, home: Path, results: Path = HOME) -> None:
        self.target = target
        self.home = home / target
        self.seeds = self.home / "seeds"
        self.found = results / "found"
        for directory in (self.home / "corpus", self.found):
            directory.mkdir(parents=True, exist_ok=True)
        write_seeds(self.seeds, {**TARGETS, **PLANTED}[target].seeds())
        self.home.joinpath("words").write_text(dictionary())

    def current(self, seed: int) -> Path:
        """Where the child that begins with ``seed`` keeps what it is checking."""
        return self.home / f"current-{seed}"

    def log(self, seed: int) -> Path:
        """The output of that child."""
        return self.home / f"log-{seed}"

    def lost(self, seed: int) -> Path | None:
        """What a child was checking when it ended without saving it, now saved."""
        current = self.current(seed)
        mapped = current.read_bytes() if current.exists() else b""
        if not mapped:
            return None
        raw = mapped[HEAD : HEAD + int.from_bytes(mapped[:HEAD])]
        path = self.found / f"{self.target}-lost-{hashlib.sha1(raw, usedforsecurity=False).hexdigest()}"
        path.write_bytes(raw)
        return path

    def command(self, seconds: float, seed: int, bounds: Bounds) -> list[str]:
        """How to start one child."""
        options = [
            f"-max_total_time={max(1, int(seconds))}",
            f"-seed={seed}",
            f"-timeout={bounds.seconds}",
            f"-rss_limit_mb={bounds.memory}",
            f"-dict={self.home / 'words'}",
            f"-artifact_prefix={self.found / self.target}-",
            "-print_final_stats=1",
        ]
        return [
            sys.executable,
            "-m",
            "tests.fuzz.child",
            self.target,
            str(self.current(seed)),
            *options,
            str(self.home / "corpus"),
            str(self.seeds),
        ]


def fuzz(
    workspace: FuzzWorkspace, seconds: float, workers: int = 1, bounds: Bounds = USUAL, seed: int = 1, most: int = 5
) -> Campaign:
    """Fuzz for ``seconds`` with as many children at once; after a find the next goes on, up to ``most`` finds."""
    began = time.monotonic()
    total = Campaign(workspace.target)
    while len(total.found) < most and (left := seconds - (time.monotonic() - began)) >= 1:
        total = sum(_together(workspace, left, range(seed, seed + workers), bounds), total)
        seed += workers
    once = {each.path or each.words: each for each in total.found}
    return total._replace(seconds=time.monotonic() - began, found=tuple(once.values()))


def _together(workspace: FuzzWorkspace, seconds: float, seeds: Iterable[int], bounds: Bounds) -> list[Campaign]:
    children = []
    for seed in seeds:
        with workspace.log(seed).open("wb") as out:
            child = subprocess.Popen(
                workspace.command(seconds, seed, bounds), cwd=ROOT, stdin=subprocess.DEVNULL, stdout=out, stderr=out
            )
        children.append((seed, child))
    return [_ended(workspace, seed, child, seconds + bounds.seconds + GRACE) for seed, child in children]


def _ended(workspace: FuzzWorkspace, seed: int, child: subprocess.Popen[bytes], seconds: float) -> Campaign:
    code, words = _wait(child, workspace.log(seed), seconds)
    text = workspace.log(seed).read_text(errors="replace")
    numbers = {name: int(value) for name, value in _STATISTIC.findall(text)}
    coverage, corpus = next(iter(_PROGRESS.findall(text)[-1:]), (0, 0))
    crashers: tuple[Crasher, ...] = ()
    if code:
        saved, raised = _SAVED.search(text), _RAISED.search(text)
        words = raised[1] if raised else f"{words}:\n{text[-1500:]}"
        crashers = (Crasher(workspace.target, Path(saved[1]) if saved else workspace.lost(seed), words),)
    return Campaign(
        workspace.target,
        numbers.get("number_of_executed_units", 0),
        0.0,
        int(coverage),
        int(corpus),
        numbers.get("peak_rss_mb", 0),
        crashers,
    )


def _wait(child: subprocess.Popen[bytes], log: Path, seconds: float) -> tuple[int, str]:
    """The exit code of a child, and how it ended. Beyond its time it may go on while it writes: the machine is busy."""
    while True:
        size = log.stat().st_size
        try:
            return (code := child.wait(seconds)), f"the fuzzer ended with {code}"
        except subprocess.TimeoutExpired:
            if log.stat().st_size == size:
                child.kill()
                return child.wait(), "an input hangs where nothing can interrupt it"
            seconds = GRACE


def cores() -> int:
    """How many children run at once."""
    return os.cpu_count() or 1
