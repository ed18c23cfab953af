"""A runner over repositories, and the cost of what it does, in counted work."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from reconciler.engines.registry import MakeEngine
from reconciler.manifests.cross_check import resources_to_check
from reconciler.manifests.document import DocumentDecoder
from reconciler.pipeline.report import Report
from reconciler.pipeline.runner import Runner
from reconciler.records.store import FILE, Records
from reconciler.settings import LocationSettings, Settings, SourceSettings
from tests.cost.shop import FAR, NEAR, Files
from tests.support.clock import FakeClock
from tests.support.git import GitRepo
from tests.support.work import counted, object_sizes


class Cost(NamedTuple):
    """What one change takes; see ``Work``.

    ``decodes`` are decoded documents, ``checks`` resources whose cross-resource rules are asked. ``objects`` and
    ``bytes`` are those of Git that a status commit adds.
    """

    calls: int
    statements: int
    instructions: int
    decodes: int
    checks: int
    objects: int
    bytes: int


class CostHarness:
    """A runner over repositories that are applied once, as the daemon has it; the first repository is to be changed.

    The records are in memory, or (``durable``) in a file.
    """

    def __init__(
        self,
        path: Path,
        sources: Mapping[str, Files],
        engines: Mapping[str, MakeEngine] | None = None,
        durable: bool = False,
        **settings: Any,
    ) -> None:
        self.repos = {name: GitRepo.create(path / f"{name}.git", files) for name, files in sources.items()}
        self.clock = FakeClock(auto=True)
        followed = tuple(SourceSettings(name, str(repo.path), "main") for name, repo in self.repos.items())
        places = {NEAR: LocationSettings("recorded"), FAR: LocationSettings("recorded")}
        options: dict[str, Any] = {"org": "acme", "locations": places, "state": path / "state", **settings}
        self.settings = Settings(sources=followed, **options)
        self.records = Records.open(path / "state" / FILE if durable else None, clock_now=self.clock.now)
        self.runner = Runner(self.settings, self.records, self.clock, engines)
        asyncio.run(self._start())

    async def _start(self) -> None:
        await self.runner.open()
        for name in self.repos:
            ended = await self.runner.run(name, "start")
            assert ended.good, ended
            self.runner.flush(name, force=True)
        # A source may have added what another one waits for.
        await self._polled()

    async def _polled(self) -> Report | None:
        ended = []
        for name in self.repos:
            ended.append(await self.runner.poll(name))
            self.runner.flush(name, force=True)
        return ended[0]

    def commit(self, files: Files) -> None:
        """Commit ``files`` to the first source."""
        next(iter(self.repos.values())).commit(files)

    def poll(self, outcome: str = "applied") -> None:
        """Poll each source and write its status, as the daemon does; the first source has this ``outcome``."""
        ended = asyncio.run(self._polled())
        assert ended is not None
        assert ended.outcome == outcome, ended

    def cost(self, act: Callable[[], object]) -> Cost:
        """The cost of ``act``."""
        before = self._objects()
        with counted(self.records) as work:
            act()
        after = self._objects()
        return Cost(
            work.calls,
            work.statements,
            work.instructions,
            work.calls_of(DocumentDecoder.manifest),
            work.calls_of(resources_to_check),
            len(after) - len(before),
            sum(after) - sum(before),
        )

    def _objects(self) -> list[int]:
        return [size for repo in self.repos.values() for size in object_sizes(repo.path)]
