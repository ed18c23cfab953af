"""The cost of a commit, from the ref to the status commit, in counted work."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from reconciler.engines.registry import ENGINES, MakeEngine
from reconciler.manifests.cross_check import resources_to_check
from reconciler.manifests.document import DocumentDecoder
from reconciler.pipeline.report import Report
from reconciler.pipeline.runner import Runner
from reconciler.records.store import Records
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


class CostSite:
    """A runner over repositories, as the daemon has it, with its records in memory."""

    def __init__(
        self, path: Path, sources: Mapping[str, Files], engines: Mapping[str, MakeEngine] = ENGINES, **settings: Any
    ) -> None:
        self.repos = {name: GitRepo.create(path / f"{name}.git", files) for name, files in sources.items()}
        self.clock = FakeClock(auto=True)
        followed = tuple(
            SourceSettings(name=name, url=str(repo.path), branch="main") for name, repo in self.repos.items()
        )
        places = {NEAR: LocationSettings("recorded"), FAR: LocationSettings("recorded")}
        options: dict[str, Any] = {"org": "acme", "locations": places, "state": path / "state", **settings}
        self.settings = Settings(sources=followed, **options)
        self.records = Records.open(None, clock_now=self.clock.now)
        self.runner = Runner(self.settings, self.records, self.clock, engines)
        assert all(each is not None and each.good for each in asyncio.run(self._start()))

    async def _start(self) -> list[Report | None]:
        await self.runner.open()
        started = [await self.runner.run(name, "start") for name in self.repos]
        # Later sources may have added what earlier ones wait for.
        return started + [each for each in await self.poll() if each is not None]

    async def poll(self) -> list[Report | None]:
        """Poll each source, and write its status."""
        ended = []
        for name in self.repos:
            ended.append(await self.runner.poll(name))
            self.runner.flush(name, force=True)
        return ended

    def commit(self, files: Files, *, outcome: str = "applied") -> Cost:
        """Commit ``files`` to the first source; the cost of following it, which must have this ``outcome``."""
        repo = next(iter(self.repos.values()))
        repo.commit(files)
        ended: list[Report | None] = []
        cost = self.cost(lambda: ended.extend(asyncio.run(self.poll())))
        assert ended[0] is not None
        assert ended[0].outcome == outcome, ended[0]
        return cost

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
