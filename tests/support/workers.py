"""Runs tests in several processes: `pytest --workers 4`.

Modules are imported and tests are collected once. Each worker is forked from the process that did so: it begins at
once, and shares its memory. A worker has a part of the tests (`scheduling`); when that is done, it takes half of
what is left of the largest other part.

pytest-xdist imports and collects in each worker, which takes 8 CPU seconds for all tests. On 2,700 of them, with five
workers and `--dist worksteal`, it took 60 CPU seconds, and these workers 50; with two workers 29 and 27.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
import traceback
import warnings
from collections import deque
from collections.abc import Iterable, Sequence
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from selectors import EVENT_READ, DefaultSelector
from typing import Any, NoReturn

import pytest

from tests.support.scheduling import arranged
from tests.support.server_offer import offered_servers

VARIABLE = "TEST_WORKER"
"""Is set in a worker."""

NOTABLE = 0.005
"""CPU seconds of a setup or teardown that `make test-cpu` counts for its test."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--workers", type=int, default=1, metavar="NUMBER", help="how many processes run the tests")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Run the tests in workers; None, for the loop of pytest, where there is one worker or nothing to run."""
    count = session.config.getoption("workers")
    if count < 2 or session.testsfailed or session.config.option.collectonly:
        return None
    terminal = session.config.pluginmanager.get_plugin("terminalreporter")
    if terminal is not None:
        terminal.showfspath = False  # the results of several files come in turns
    session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]
    indices = {item: index for index, item in enumerate(session.items)}
    parts = arranged(session.items, min(count, max(1, len(session.items))))
    with offered_servers():
        Pool(session, [[indices[item] for item in part] for part in parts]).run()
    if session.shouldfail:
        raise session.Failed(session.shouldfail)
    if session.shouldstop:
        raise session.Interrupted(session.shouldstop)
    return True


class Worker:
    """A process that runs tests: ``part`` are the numbers of those it has not been sent, ``sent`` of those it has."""

    def __init__(self, pid: int, link: Connection, part: Iterable[int]) -> None:
        self.pid = pid
        self.link = link
        self.handle = os.pidfd_open(pid)
        self.part = deque(part)
        self.sent: deque[int] = deque()
        self.is_ending = False


class Pool:
    """The workers, as the process sees them that collects their reports."""

    def __init__(self, session: pytest.Session, parts: Sequence[Sequence[int]]) -> None:
        self._session = session
        self._workers: list[Worker] = []
        self._messages = DefaultSelector()
        self._number = 0
        self._parts = parts
        self._faults: list[str] = []

    def run(self) -> None:
        """Run all tests. After an interrupt each worker ends by itself: its link is closed."""
        for part in self._parts:
            self._start(part)
        try:
            while self._workers:
                self._receive()
        finally:
            for worker in self._workers:
                worker.link.close()
            for worker in self._workers:
                os.waitpid(worker.pid, 0)
        if self._faults:
            raise self._session.Failed("\n".join(self._faults))

    def _start(self, part: Iterable[int]) -> None:
        """Fork a worker and send it its first two tests: it knows the next one when it ends one."""
        assert len(os.listdir("/proc/self/task")) == 1, "a thread would be lost in workers"
        mine, other = Pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if not pid:
            mine.close()
            for worker in self._workers:
                worker.link.close()
                os.close(worker.handle)
            work(self._session, self._number, other)
        other.close()
        self._number += 1
        worker = Worker(pid, mine, part)
        self._workers.append(worker)
        for source in (worker.link, worker.handle):
            self._messages.register(source, EVENT_READ, worker)
        self._send(worker)
        self._send(worker)

    def _send(self, worker: Worker) -> None:
        """Send ``worker`` its next test, or once that there is none."""
        if self._session.shouldfail or self._session.shouldstop:
            for peer in self._workers:
                peer.part.clear()
        if not worker.part:
            largest = max(self._workers, key=lambda peer: len(peer.part))
            for _ in range((len(largest.part) + 1) // 2):
                worker.part.appendleft(largest.part.pop())
        if worker.part:
            worker.sent.append(worker.part.popleft())
            worker.link.send(worker.sent[-1])
        elif not worker.is_ending:
            worker.is_ending = True
            worker.link.send(None)

    def _receive(self) -> None:
        """Take one message of each worker that has sent any, and clear away those that have ended."""
        ready = dict.fromkeys(key.data for key, _ in self._messages.select())
        for worker in ready:
            try:
                # What a worker sent before it ended is taken first.
                if not worker.link.poll():
                    raise EOFError
                form, data = worker.link.recv()
            except (EOFError, OSError):
                self._end(worker)
            else:
                self._take(worker, form, data)

    def _take(self, worker: Worker, form: str, data: Any) -> None:
        hook = self._session.config.hook
        if form == "report":
            report = hook.pytest_report_from_serializable(config=self._session.config, data=data)
            hook.pytest_runtest_logreport(report=report)
        elif form == "warning":
            (text, category, file, line), when, nodeid, location = data
            message = warnings.WarningMessage(text, type(category, (Warning,), {}), file, line)
            hook.pytest_warning_recorded.call_historic(
                kwargs={"warning_message": message, "when": when, "nodeid": nodeid, "location": location}
            )
        else:
            worker.sent.popleft()
            self._send(worker)

    def _end(self, worker: Worker) -> None:
        """Forget ``worker``, which has ended. If it ran a test, that fails, and a new worker takes its place."""
        self._workers.remove(worker)
        for source in (worker.link, worker.handle):
            self._messages.unregister(source)
        worker.link.close()
        os.close(worker.handle)
        code = os.waitstatus_to_exitcode(os.waitpid(worker.pid, 0)[1])
        if not worker.sent:
            if code:
                self._faults.append(f"a worker ended with {code} after its last test")
            return
        item = self._session.items[worker.sent.popleft()]
        message = f"the worker that ran this test ended with {code}"
        report = pytest.TestReport(item.nodeid, item.location, {}, "failed", message, "call")
        self._session.config.hook.pytest_runtest_logreport(report=report)
        self._start([*worker.sent, *worker.part])


class Relay:
    """Sends what a worker reports, once it ``is_live``: before, pytest repeats former warnings for a new plugin."""

    def __init__(self, config: pytest.Config, link: Connection) -> None:
        self.is_live = False
        self._config = config
        self._link = link

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if self._is_dull(report):
            return
        data = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        self._link.send(("report", data))

    def _is_dull(self, report: pytest.TestReport) -> bool:
        """Whether it is a setup or teardown of which nobody learns anything: two of three reports are."""
        has_news = report.when == "call" or not report.passed or report.sections or self._config.option.durations
        return not has_news and getattr(report, "cpu", 0.0) < NOTABLE

    def pytest_warning_recorded(
        self, warning_message: warnings.WarningMessage, when: str, nodeid: str, location: Any
    ) -> None:
        if not self.is_live:
            return
        text = str(warning_message.message), warning_message.category.__name__
        message = *text, warning_message.filename, warning_message.lineno
        self._link.send(("warning", (message, when, nodeid, location)))


def work(session: pytest.Session, number: int, link: Connection) -> NoReturn:
    """Run the tests whose numbers come over ``link``, and end this process."""
    code = 1
    try:
        _prepare(session.config, number, link)
        _run(session, link)
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        code = 0
    except KeyboardInterrupt:
        code = -signal.SIGINT & 255
    except BaseException:  # noqa: BLE001  # nothing may go on as the process that was forked
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _prepare(config: pytest.Config, number: int, link: Connection) -> None:
    """Give this worker what it may not share: files of captured output, a directory, and the way of its reports."""
    os.environ[VARIABLE] = str(number)
    capture = config.pluginmanager.get_plugin("capturemanager")
    capture.stop_global_capturing()
    capture.start_global_capturing()
    capture.suspend_global_capture()
    factory = config._tmp_path_factory  # type: ignore[attr-defined]
    factory._basetemp = Path(factory.getbasetemp(), str(number))
    factory._basetemp.mkdir(mode=0o700)
    terminal = config.pluginmanager.get_plugin("terminalreporter")
    if terminal is not None:
        config.pluginmanager.unregister(terminal)
    relay = Relay(config, link)
    config.pluginmanager.register(relay)
    relay.is_live = True


def _run(session: pytest.Session, link: Connection) -> None:
    current = link.recv()
    while current is not None:
        following = link.recv()
        item = session.items[current]
        after = None if following is None else session.items[following]
        session.config.hook.pytest_runtest_protocol(item=item, nextitem=after)
        link.send(("done", current))
        current = following
