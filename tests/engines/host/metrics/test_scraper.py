"""When containers of a location are scraped, what remains of it, and what is reported: real sockets, a fake clock."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from msgspec.structs import replace

from reconciler.engines.host.metrics.scraper import CHECK, FAILURES, INTERVAL, Scraper, ScrapeTarget, next_due
from reconciler.engines.host.runtimes.protocol import ContainerId
from reconciler.engines.protocol import EngineEvent
from reconciler.engines.workload.spec import ContainerSpec, Type, WorkloadSpec
from reconciler.engines.workload.template import ReplicaTemplate
from reconciler.model.key import Key, Kind
from reconciler.model.kinds.workload import Metrics, Options, Specification
from reconciler.settings import MetricsSettings
from tests.engines.host.metrics.kit import RecordedRequests, ok, serving
from tests.engines.host.provisioning.kit import around
from tests.engines.host.signals import RecordedSignals
from tests.support.clock import FakeClock
from tests.support.waiting import until

KEY = Key(Kind.WORKLOAD, "shop", "web")
GOOD, BAD = ok(b"a 1\n"), ok(b"rubbish\n")


class TargetList:
    """Targets that a test changes."""

    def __init__(self) -> None:
        self.list: list[ScrapeTarget] = []

    def targets(self) -> list[ScrapeTarget]:
        """Those that there are now."""
        return self.list


class ScraperHarness:
    """A scraper whose targets a test changes."""

    def __init__(self, requests: RecordedRequests, budget: int = 64) -> None:
        self.clock = FakeClock()
        self.events: list[EngineEvent] = []
        listed = TargetList()
        self.targets = listed.list
        self.requests = requests
        settings = MetricsSettings("127.0.0.1:9464", budget)
        self.scraper = Scraper(settings, listed, self.clock, RecordedSignals(self.events))

    def add(self, replica: str, port: int = 0) -> None:
        """Another replica."""
        port = port or self.requests.port
        self.targets.append(ScrapeTarget(ContainerId(KEY, replica, "main"), port, "/metrics", f'replica="{replica}"'))

    async def scraped(self, count: int) -> None:
        """Let time pass until the server has got ``count`` requests, and their results are known."""
        while len(self.requests) < count:
            await self.clock.advance(CHECK)
            await self.finish_scrapes()
        assert len(self.requests) == count

    async def finish_scrapes(self) -> None:
        """Wait for scrapes in progress."""
        await until(lambda: not self.scraper._scraping)

    def errors(self) -> list[str]:
        return [each.error for each in self.scraper.results()]


def play(story: Callable[[ScraperHarness], Awaitable[None]], *answers: bytes, budget: int = 64) -> None:
    """Play ``story`` with a server of ``answers``."""

    async def whole() -> None:
        async with serving(*answers) as requests:
            harness = ScraperHarness(requests, budget)
            [work] = harness.scraper.work()
            task = asyncio.create_task(work)
            try:
                await story(harness)
            finally:
                task.cancel()
                await asyncio.wait({task})

    asyncio.run(whole())


def test_every_replica_is_scraped_every_30_seconds() -> None:
    async def story(harness: ScraperHarness) -> None:
        harness.add("web-1")
        harness.add("web-2")
        await harness.scraped(2)
        begun = harness.clock.monotonic()
        await harness.scraped(22)
        assert 9 * INTERVAL <= harness.clock.monotonic() - begun <= 10 * INTERVAL + CHECK
        assert [each.labels for each in harness.scraper.results()] == ['replica="web-1"', 'replica="web-2"']

    play(story, GOOD)


def test_the_grid_spreads_the_load() -> None:
    dues = [next_due(ContainerId(KEY, f"web-{number}", "main"), 1000.0) - 1000.0 for number in range(300)]
    assert all(0 < due <= INTERVAL for due in dues)
    assert all(50 < sum(low <= due < low + 10 for due in dues) < 150 for low in (0, 10, 20))


def test_a_container_that_starts_is_tried_again_soon() -> None:
    async def story(harness: ScraperHarness) -> None:
        harness.add("web-1")
        await harness.scraped(4)
        assert harness.clock.monotonic() <= 6 * CHECK
        assert (harness.errors(), harness.events) == ([""], [])

    play(story, BAD, BAD, BAD, GOOD)


def test_a_replica_that_is_gone_leaves_the_page() -> None:
    async def story(harness: ScraperHarness) -> None:
        harness.add("web-1")
        harness.add("web-2")
        await harness.scraped(2)
        del harness.targets[0]
        await harness.clock.advance(CHECK)
        assert [each.labels for each in harness.scraper.results()] == ['replica="web-2"']

    play(story, GOOD)


def test_a_long_outage_is_one_event_and_its_end_another() -> None:
    async def story(harness: ScraperHarness) -> None:
        harness.add("web-1")
        await harness.scraped(1)
        await harness.scraped(FAILURES)
        assert (harness.events, harness.errors()) == ([], ["line 1 is no sample of the text format"])
        await harness.scraped(FAILURES + 3)
        text = "web-1: the metrics of main at /metrics cannot be scraped: line 1 is no sample of the text format"
        assert [(each.reason, each.message) for each in harness.events] == [("ScrapeFailed", text)]
        await harness.scraped(FAILURES + 5)
        assert [each.reason for each in harness.events] == ["ScrapeFailed", "ScrapeRecovered"]

    play(story, GOOD, *[BAD] * (FAILURES + 2), GOOD)


def test_the_outage_of_many_replicas_is_one_event() -> None:
    async def story(harness: ScraperHarness) -> None:
        for number in range(5):
            harness.add(f"web-{number}")
        await harness.scraped(5)
        while len(harness.requests) < 40:
            await harness.clock.advance(CHECK)
            await harness.finish_scrapes()
        assert [each.reason for each in harness.events] == ["ScrapeFailed"]
        harness.targets.clear()
        await harness.clock.advance(CHECK)
        assert harness.scraper.results() == []

    play(story, *[GOOD] * 5, BAD)


def test_metrics_beyond_the_budget_are_a_failure_of_that_replica_alone() -> None:
    large = ok(b"# padding\n" * 60_000 + b"a 1\n")

    async def story(harness: ScraperHarness) -> None:
        harness.add("web-1")
        harness.add("web-2")
        await harness.scraped(2)
        assert sorted(harness.errors()) == [
            "",
            "with it, all metrics of the location exceed host.metrics.budget, 1 MiB",
        ]

    play(story, large, budget=1)


def test_a_bug_in_one_scrape_leaves_the_others() -> None:
    async def story(harness: ScraperHarness) -> None:
        harness.add("web-1")
        harness.add("web-2", port=99_999)  # no port: connect raises OverflowError
        await harness.scraped(1)
        assert harness.errors() == [""]

    play(story, GOOD)


def test_nothing_is_scraped_without_an_address() -> None:
    scraper = Scraper(MetricsSettings(), TargetList(), FakeClock(), RecordedSignals())
    containers = ContainerSpec("plain"), ContainerSpec("main", metrics=Metrics(9102))
    spec = WorkloadSpec(KEY, Type.STANDARD, 1, "digest", "hash", 1, containers, Options())
    sentence = "Metrics are not scraped: the settings have no host.metrics.address."
    assert list(scraper.limitations(template_of(spec))) == [sentence]
    assert list(scraper.limitations(template_of(replace(spec, containers=containers[:1])))) == []
    with_address = Scraper(MetricsSettings("127.0.0.1:9464"), TargetList(), FakeClock(), RecordedSignals())
    assert list(with_address.limitations(template_of(spec))) == []
    assert scraper.work() == ()
    assert scraper.results() == []


def template_of(wanted: WorkloadSpec) -> ReplicaTemplate:
    """A template that wants it."""
    return ReplicaTemplate(wanted, Specification(), around())
