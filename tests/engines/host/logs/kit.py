"""A location whose containers write, and what is found of it."""

from __future__ import annotations

import asyncio
from functools import partial
from itertools import islice
from pathlib import Path

from reconciler.engines.host.logs.collector import BUDGET, Collected, Collector, LogLimits
from reconciler.engines.host.logs.hole_punch import FreeRange, punch_hole
from reconciler.engines.host.logs.search import Search
from reconciler.engines.host.runtimes.protocol import ContainerId, OutputForm
from reconciler.engines.reading import ALWAYS, LogLine, LogSearch, LogSelection, LogSpan, select_lines
from reconciler.listing import list_paths
from reconciler.logql.parser import parse_log_query
from reconciler.model.key import Key
from tests.support.clock import FakeClock

EVERYTHING = '{gvc=~".+"}'


def place(workload: str = "web", replica: str = "", container: str = "main", gvc: str = "shop") -> ContainerId:
    return ContainerId(Key.parse(f"workload/{gvc}/{workload}"), replica or f"{workload}-1", container)


class LogHarness:
    """Containers that write, a collector, and searches. ``free`` as of Collector."""

    def __init__(
        self, path: Path, budget: int = BUDGET, free: FreeRange = punch_hole, form: OutputForm = OutputForm.PLAIN
    ) -> None:
        self.form = form
        self.state = path / "state"
        self.root = self.state / "host" / "here" / "logs"
        self.outputs = path / "outputs"
        self.outputs.mkdir(parents=True, exist_ok=True)
        self.clock = FakeClock()
        self.budget = budget
        self.free = free
        self.collector = self.restarted()

    def restarted(self) -> Collector:
        """A collector that knows only what is on disk; it takes the place of the one before."""
        self.collector = Collector(self.root, "here", self.clock, LogLimits(self.budget), self.free)
        for output in sorted(self.outputs.iterdir()):
            gvc, workload, replica, container = output.name.split("+")
            self.collector.watch(place(workload, replica, container, gvc), output, self.form)
        return self.collector

    def output(self, at: ContainerId) -> Path:
        """What the container appends to."""
        return self.outputs / "+".join((at.key.gvc, at.key.name, at.replica, at.container))

    def write(self, text: bytes | str, at: ContainerId | None = None) -> Path:
        """Append ``text``, and follow it from now on; returns the file."""
        there = self.output(at or place())
        with there.open("ab") as file:
            file.write(text.encode() if isinstance(text, str) else text)
        self.collector.watch(at or place(), there, self.form)
        return there

    def collect(self) -> Collected:
        """Collect until nothing is left; the last result."""

        async def rounds() -> Collected:
            while (done := await self.collector.collect()).behind:
                pass
            return done

        return asyncio.run(rounds())

    def forget(self, at: ContainerId) -> Collected:
        """Follow it no longer."""
        return asyncio.run(self.collector.forget(at))

    def wait(self, seconds: float) -> None:
        """Let time pass."""
        asyncio.run(self.clock.advance(seconds))

    def taken(self, text: bytes | str, at: ContainerId | None = None) -> None:
        """Write ``text`` and have it collected."""
        self.write(text, at)
        assert self.collect().trouble == ""

    def roots(self) -> dict[str, Path]:
        """The logs of every location, by location."""
        return {path.name: path / "logs" for path in list_paths(self.state / "host", "*")}

    def search(self, query: str = EVERYTHING) -> Search:
        """What ``reconciler logs`` searches."""
        parsed = parse_log_query(query)
        return Search(self.roots(), LogSelection(parsed.selects, partial(select_lines, parsed)))

    def found(self, query: str = EVERYTHING, limit: int = 1_000_000, span: LogSpan = ALWAYS) -> list[LogLine]:
        """The newest lines."""
        return newest(self.search(query), limit, span)

    def lines(self, query: str = EVERYTHING, limit: int = 1_000_000) -> list[str]:
        """Their text."""
        return texts(self.found(query, limit))

    def written(self, query: str = EVERYTHING) -> str:
        """All that was written, without line breaks and without the marks of lines that were cut."""
        return "".join(self.lines(query)).replace("…", "")

    def segments(self, at: ContainerId | None = None) -> list[Path]:
        """Files of one stream, oldest first."""
        at = at or place()
        directory = self.root / at.key.gvc / at.key.name / at.replica / at.container
        return sorted(directory.glob("*.rlog"), key=lambda path: int(path.stem.partition("-")[2]))


def newest(search: LogSearch, limit: int, span: LogSpan = ALWAYS) -> list[LogLine]:
    """The newest lines of a search, oldest first."""
    return list(islice(search.backward(span), limit))[::-1]


def texts(lines: list[LogLine]) -> list[str]:
    return [line.text.decode() for line in lines]
