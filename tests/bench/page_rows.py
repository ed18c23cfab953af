"""Rows about the page: its views among many resources, what a change takes to show, and two hundred that are open."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from statistics import median
from typing import NamedTuple

import httpx2

from tests.bench.api_rows import Load, proportional_memory, served
from tests.bench.generate import commit_change, commit_file
from tests.bench.host_sandbox import share, used
from tests.bench.measure import Failed, percentile
from tests.bench.push import measure_pushes
from tests.bench.table import Row
from tests.bench.workspace import Installation, Workspace
from tests.support.sandbox import eventually

PAGES = 200
"""Pages that are open, of ACCOUNTS in turn: one caller has fifty at most."""
ACCOUNTS = tuple(f"bench-page-{number}" for number in range(5))
CHANGED_FILES = 100
"""The files that differ between two revisions, of which a page shows some."""
REST = 10.0
"""Seconds after which a page asks again at once."""


def page(workspace: Workspace) -> Iterator[Row]:
    """The first screen, a level of the tree, searches, and pages that are open while commits are applied."""
    installation = workspace.applied(workspace.count)
    gvc, name = workspace.workload(42)
    # The line is measured by its status commits, which by default may wait for 30 s.
    with served(workspace, installation, workspace.with_status_interval(installation, "0s")) as (pid, socket):
        yield _view(workspace, Load(pid, socket, ["/"], 1), f"first screen of {workspace.count:,}, p50", 0.05)
        yield Row("  all of a first visit, on the wire", _measure_visit(socket) / 1000, 60, "KB")
        yield from _paint(workspace, socket)
        levels = [f"/ui/resources?gvc={workspace.workload(number * 97)[0]}" for number in range(10)]
        levels += ["/ui/resources", "/ui/resources?kind=gvc", "/ui/resources?kind=workload"] * 4
        levels += [f"/ui/resources?gvc={gvc}&kind=workload&open=workload/{gvc}/{name}"] * 4
        yield _view(workspace, Load(pid, socket, levels, 1), "a level of the tree, p50", 0.03)
        texts = [name[:length] for length in range(2, len(name) + 1)] + [gvc[:4], "no-such-thing", f"/{name}"]
        searches = [f"/ui/resources?text={text}" for text in texts]
        yield _view(workspace, Load(pid, socket, searches, 1), "a search as somebody types, p50", 0.05)
        yield _compare(workspace, installation.repository, pid, socket)
        keys = _make_keys(installation, socket)
        yield from asyncio.run(_measure_open_pages(workspace, installation.repository, pid, Server(socket, keys)))


def _compare(workspace: Workspace, repository: Path, pid: int, socket: Path) -> Row:
    """What a page takes that shows the differences of two revisions, in which CHANGED_FILES differ."""
    commit = commit_change(repository, CHANGED_FILES, 7_900_000)
    paths = [f"/ui/diff/source/main?from={commit}~1&to={commit}"]
    return _view(workspace, Load(pid, socket, paths, 1), f"a diff of two revisions, {CHANGED_FILES} files, p50", 0.1)


def _view(workspace: Workspace, load: Load, what: str, limit: float) -> Row:
    load.measured(workspace)  # the first one loads the templates
    found = load.measured(workspace)
    note = f"p99 {1000 * found['p99']:.1f} ms, CPU of the server {1000 * found['server']:.1f} ms"
    return Row(what, found["p50"], limit, note=note)


def _measure_visit(socket: Path) -> int:
    """The bytes that a browser without a cache gets for the first screen."""
    with httpx2.Client(transport=httpx2.HTTPTransport(uds=str(socket)), base_url="http://api") as client:
        text = client.get("/").text
        names = [part.partition('"')[0] for part in text.split('"/ui/asset/')[1:]]
        paths = ["/", *(f"/ui/asset/{name}" for name in dict.fromkeys(names))]
        answers = [client.get(path, headers={"Accept-Encoding": "gzip"}) for path in paths]
        return sum(answer.num_bytes_downloaded for answer in answers)


def _paint(workspace: Workspace, socket: Path) -> Iterator[Row]:
    """The time until Chromium shows the first screen, where both are installed."""
    chromium = shutil.which("chromium")
    if chromium is None:
        return
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright, _forwarded(socket) as address:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        tab, taken = browser.new_page(), []
        for _ in range(workspace.often(20) + 1):
            tab.goto(address)
            # The policy of the page allows no `wait_for_function`, which evaluates a string.
            taken.append(eventually(lambda: tab.evaluate(FIRST_PAINT), "the first paint") / 1000)
        browser.close()
    yield Row("  painted by Chromium, p50", median(taken[1:]), 0.2, note=f"the first visit {1000 * taken[0]:.0f} ms")


FIRST_PAINT = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"


@contextmanager
def _forwarded(socket: Path) -> Iterator[str]:
    """An address of this host whose connections lead to ``socket``, where the root of this host needs no login."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.bench.forward", socket], stdout=subprocess.PIPE, text=True
    ) as forward:
        assert forward.stdout is not None
        try:
            yield f"http://127.0.0.1:{forward.stdout.readline().strip()}/"
        finally:
            forward.terminate()


def _make_keys(installation: Installation, socket: Path) -> list[str]:
    """Keys of accounts that may view everything, each by the group of all of them."""
    links = [f"//serviceaccount/{name}" for name in ACCOUNTS]
    manifests = [{"kind": "serviceaccount", "name": name} for name in ACCOUNTS]
    group = {"kind": "group", "name": "viewers", "memberLinks": links}
    commit_file(installation.repository, "viewers.yaml", "\n---\n".join(map(json.dumps, [*manifests, group])).encode())
    with httpx2.Client(transport=httpx2.HTTPTransport(uds=str(socket)), base_url="http://api") as client:
        for name in ACCOUNTS:
            path = f"/org/acme/serviceaccount/{name}"
            eventually(lambda path=path: client.get(path).status_code == 200, "the accounts are applied", 60)
        return [client.post(f"/org/acme/serviceaccount/{name}/-key", json={}).json()["key"] for name in ACCOUNTS]


class Server(NamedTuple):
    """The socket of the API, and the keys of callers."""

    socket: Path
    keys: list[str]


class OpenPage:
    """A first screen that is open: it follows the records, and takes what it gets as its script does."""

    def __init__(self, server: Server, key: str) -> None:
        self._server = server
        self._headers = f"Host: api\r\nAuthorization: Bearer {key}\r\n"
        self._renewed = asyncio.Event()
        self._content = b""

    async def wait(self, wanted: bytes) -> None:
        """Return once it shows ``wanted``."""
        while wanted not in self._content:
            self._renewed.clear()
            await asyncio.wait_for(self._renewed.wait(), 60)

    async def follow(self) -> None:
        """Follow the records until cancelled."""
        events, sender = await self._send("GET /ui/events?view=%2F HTTP/1.1\r\n")
        try:
            await self._renew()
            while line := await events.readline():
                if line.startswith(b"event: recorded"):
                    await self._renew()
                elif line.startswith(b"event: view"):
                    self._content = await _read_event(events)
                    self._renewed.set()
            raise Failed("the stream of a page ended")
        finally:
            sender.close()

    async def _renew(self) -> None:
        # A browser keeps a connection for some seconds; where changes are rare, it makes a new one.
        reader, writer = await self._send("GET / HTTP/1.1\r\nHX-Request: true\r\n")
        self._content = await _read_answer(reader)
        writer.close()
        self._renewed.set()

    async def _send(self, request: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_unix_connection(str(self._server.socket))
        writer.write(f"{request}{self._headers}\r\n".encode())
        return reader, writer


async def _read_event(events: asyncio.StreamReader) -> bytes:
    lines: list[bytes] = []
    while (line := await events.readline()).startswith(b"data: "):
        lines.append(line)
    return b"".join(lines)


async def _read_answer(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 200"):
        raise Failed(f"a page is refused: {head[:300]!r}")
    return await reader.readexactly(int(head.lower().partition(b"content-length: ")[2].split()[0]))


@asynccontextmanager
async def _opened(server: Server) -> AsyncIterator[list[OpenPage]]:
    """As many pages as PAGES, that are open."""
    pages = [OpenPage(server, server.keys[number % len(server.keys)]) for number in range(PAGES)]
    tasks = [asyncio.create_task(each.follow()) for each in pages]
    try:
        await asyncio.sleep(REST)
        if ended := [task for task in tasks if task.done()]:
            ended[0].result()
        yield pages
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _measure_open_pages(workspace: Workspace, repository: Path, pid: int, server: Server) -> list[Row]:
    """What pages cost that are open, when they show a change, and what that takes from the line."""
    times = workspace.often(40)
    alone = await asyncio.to_thread(measure_pushes, repository, times, 0.2)
    before = proportional_memory(pid)
    async with _opened(server) as pages:
        at_rest = (await asyncio.to_thread(share, pid, REST))[0]
        cpu, turns = used(pid).cpu, range(workspace.often(5))
        shown = [await _measure_change(repository, pages, 7_000_000 + turn) for turn in turns]
        renewal = (used(pid).cpu - cpu) / len(turns) / PAGES
        began, pushing = used(pid).cpu, time.monotonic()
        together = await asyncio.to_thread(measure_pushes, repository, times, 0.2)
        busy = 100 * (used(pid).cpu - began) / (time.monotonic() - pushing)
        memory = proportional_memory(pid) - before
    last = max(max(each) for each in shown)
    note = f"p50 {1000 * median(median(each) for each in shown):.0f} ms, with the run that applies it; "
    note += f"{1000 * renewal:.1f} ms of CPU of the server for each"
    ratio = percentile(together, 0.99) / percentile(alone, 0.99)
    halves = f"p50 {median(together) / median(alone):.2f} times"
    return [
        Row(f"{PAGES} open pages: of one core, at rest", at_rest, 5, "%"),
        Row("  of one core, while a commit follows the other", busy, 5, "%"),
        Row("  memory that they take", max(0.0, memory), 80, "MB"),
        Row("  a change shows on all of them, at most", last, 0.3, note=note),
        Row("  the line's p99 with them against without", ratio, 1.2, "times", note=halves),
    ]


async def _measure_change(repository: Path, pages: list[OpenPage], seed: int) -> list[float]:
    """Seconds from a commit until each of ``pages`` shows it."""
    await asyncio.sleep(REST)
    began = time.perf_counter()
    commit = await asyncio.to_thread(commit_change, repository, 1, seed)

    async def wait(each: OpenPage) -> float:
        await each.wait(commit[:12].encode())
        return time.perf_counter() - began

    return list(await asyncio.gather(*map(wait, pages)))
