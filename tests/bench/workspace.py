"""What is measured on: repositories made once and cached, and copies of them that a state directory follows."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

from tests.bench import generate, large_gvc, manifests, mixed, plain, templates
from tests.bench.calibration import Calibration
from tests.bench.manifests import LOCATIONS
from tests.bench.measure import BIN, Measured, run

SETTINGS = """org: acme
state: {state}
sources:
  - {{name: main, url: {repository}, branch: main, interval: 1h{status}}}
locations:
"""


class Installation(NamedTuple):
    """A repository, and the settings that follow it."""

    repository: Path
    settings: Path

    @property
    def env(self) -> dict[str, str]:
        """The environment in which commands find the settings."""
        return {"RECONCILER_SETTINGS": str(self.settings)}


class Workspace:
    """``cache`` holds the repositories from one benchmark to the next, ``scratch`` all that one benchmark changes.

    ``calibration`` knows the pace of the machine.
    """

    def __init__(
        self, cache: Path, scratch: Path, count: int, quick: bool, fixture: str, calibration: Calibration
    ) -> None:
        self.cache = cache
        self.scratch = scratch
        self.count = count
        self.quick = quick
        self.fixture = fixture
        self.calibration = calibration
        self.workloads = 0
        """How many the rows about clusters have; 0: as many as they are about."""
        self._applied: dict[tuple[str, int], Installation] = {}
        self._made = 0

    def often(self, times: int) -> int:
        """How often to measure: ``times``, less where it has to be quick."""
        return max(2, times // 10) if self.quick else times

    def repository(self, count: int, fixture: str = "") -> Path:
        """A bare repository of ``count`` manifests that stays unchanged, of this fixture or another."""
        fixture = fixture or self.fixture
        path = self.cache / f"{fixture}-{count}-{_edition()}.git"
        if not path.exists():
            part = path.with_suffix(".part")
            shutil.rmtree(part, ignore_errors=True)
            run([sys.executable, "-m", "tests.bench.generate", part, str(count), fixture])
            part.rename(path)
        return path

    def installation(self, count: int, fixture: str = "") -> Installation:
        """A repository of its own with settings and no state."""
        self._made += 1
        home = self.scratch / f"site-{self._made}"
        shutil.copytree(self.repository(count, fixture), home / "manifests.git")
        (home / "settings.yaml").write_text(_settings(home))
        return Installation(home / "manifests.git", home / "settings.yaml")

    def with_status_interval(self, installation: Installation, interval: str) -> Path:
        """Settings of ``installation`` under which status is written at most once in ``interval``."""
        path = installation.settings.with_name(f"status-{interval}.yaml")
        path.write_text(_settings(installation.settings.parent, f", status: {{interval: {interval}}}"))
        return path

    def applied(self, count: int, fixture: str = "") -> Installation:
        """An installation that was applied once, in this benchmark; always the same one for a count of a fixture."""
        which = fixture, count
        if which not in self._applied:
            self._applied[which] = self.newly_applied(count, fixture)
        return self._applied[which]

    def newly_applied(self, count: int, fixture: str = "") -> Installation:
        """An installation that was applied once, just now."""
        installation = self.installation(count, fixture)
        _apply(installation)
        return installation

    def first_apply(self, count: int) -> Measured:
        """What the first apply of an installation takes, which is removed afterwards."""
        with self.temporary_installation(count) as installation:
            return _apply(installation)

    @contextmanager
    def temporary_installation(self, count: int) -> Iterator[Installation]:
        """An installation without state that is removed at the end."""
        installation = self.installation(count)
        try:
            yield installation
        finally:
            shutil.rmtree(installation.settings.parent)

    def work_tree(self, count: int) -> Path:
        """A directory of ``count`` manifests, as a checkout leaves them."""
        path = self.cache / f"{self.fixture}-{count}-{_edition()}"
        if not path.exists():
            part = path.with_suffix(".part")
            shutil.rmtree(part, ignore_errors=True)
            run(["git", "-c", "advice.detachedHead=false", "clone", "--quiet", self.repository(count), part])
            shutil.rmtree(part / ".git")
            part.rename(path)
        return path

    def workload(self, index: int) -> tuple[str, str]:
        """GVC and name of a workload of the fixture."""
        module = plain if self.fixture == "plain" else manifests
        return module.gvc_of(index), module.workload_name(index)

    def mixed_tree(self, count: int) -> Path:
        """A directory of ``count`` files of every kind; made anew each time, which takes a second."""
        path = self.scratch / f"mixed-{count}"
        mixed.write(path, count)
        return path


def _apply(installation: Installation) -> Measured:
    measured = run([BIN / "reconciler", "apply"], installation.env)
    os.sync()  # or what is measured next waits for a gigabyte on its way to the disk
    return measured


@cache
def _edition() -> str:
    """Names the texts that repositories are made of, so that one of former texts is never measured."""
    digest = blake2b(digest_size=4)
    for module in (large_gvc, generate, manifests, plain, templates):
        digest.update(Path(module.__file__).read_bytes())
    return digest.hexdigest()


def _settings(home: Path, status: str = "") -> str:
    lines = [SETTINGS.format(state=home / "state", repository=home / "manifests.git", status=status)]
    return "".join([*lines, *(f"  {place}: {{engine: recorded}}\n" for place in LOCATIONS)])
