"""Long works show how far they are: a bar on a terminal, without one a line each ten seconds."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pty
from io import StringIO, TextIOWrapper
from pathlib import Path

import msgspec
import pytest
from structlog.testing import capture_logs

from reconciler.cli import foreground
from reconciler.cli.output.progress import ProgressDisplay, WaitDisplay, add_bar, format_bar
from reconciler.convert.checking import check_drafts
from reconciler.convert.drafts import Draft
from reconciler.daemon.run_log import ProgressLog
from reconciler.iteration import Progress, report_progress_to, track_items
from reconciler.manifests.normalize import ManifestContext
from reconciler.model.key import Kind
from reconciler.model.record import Health
from reconciler.pipeline.externals import ExternalResources
from reconciler.printable import guard_stream
from reconciler.records.backup import restore_backup
from reconciler.records.store import FILE, Records
from reconciler.review.folder import check_folder
from reconciler.settings import load_settings
from tests.support.clock import FakeClock
from tests.support.command_sandbox import GVC, CommandSandbox, workload


class Terminal(StringIO):
    """Text that a terminal gets."""

    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _on_a_terminal_that_obeys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")


def test_a_bar_comes_late_and_goes_with_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    clock, terminal = FakeClock(), Terminal()
    display = ProgressDisplay(terminal, clock.monotonic)
    display.show(Progress("reading manifests", 1, 10))
    assert terminal.getvalue() == "", "most works end before"
    clock.block(1.0)
    display.show(Progress("reading manifests", 5, 10))
    display.show(Progress("reading manifests", 6, 10))
    bar = "reading manifests: 5 of 10  [##############" + "-" * 15 + "]"
    assert terminal.getvalue() == f"\r\x1b[J{bar}", "it is drawn ten times a second at most"
    display.show(Progress("reading manifests", 10, 10))
    assert terminal.getvalue().endswith("]\r\x1b[J")


def test_a_pull_has_a_bar_behind_its_megabytes() -> None:
    line = "workload/shop/api@here  the image of main is being pulled: {}; 0 of 1 replicas updated"
    assert add_bar(line.format("30 of 120 MB")) == line.format(f"30 of 120 MB [{'#' * 5}{'-' * 15}]")
    assert add_bar(line.format("1.2 of 1.2 MB")) == line.format(f"1.2 of 1.2 MB [{'#' * 20}]")
    for other in (line.format("0.0 of 0.0 MB"), "1 of 2 replicas updated", ""):
        assert add_bar(other) == other


def test_up_prints_each_ten_seconds_what_is_loading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(foreground, "LINE_SECONDS", 0.01)
    sandbox = CommandSandbox(tmp_path)
    sandbox.applied()
    shown: list[str] = []

    async def pull() -> None:
        announcing = asyncio.create_task(foreground.announce_progress(load_settings(sandbox.settings), shown.append))
        with contextlib.closing(Records.open(sandbox.state / FILE)) as records:
            for megabytes, health in ((30, Health.LOADING), (60, Health.LOADING), (60, Health.UNHEALTHY)):
                text = f"the image of main is being pulled: {megabytes} of 120 MB"
                state = msgspec.json.encode({"status": {"message": text}})
                records.applied.update_seen("workload/shop/api", "here", health, state)
                while health is Health.LOADING and not any(text in line for line in shown):
                    await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)
        announcing.cancel()

    asyncio.run(pull())
    texts = [f"  waiting: workload/shop/api@here  the image of main is being pulled: {n} of 120 MB" for n in (30, 60)]
    assert shown == texts


def test_a_real_terminal_gets_the_bar_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    clock = FakeClock()
    master, slave = pty.openpty()
    with os.fdopen(master, "rb", buffering=0) as seen, os.fdopen(slave, "w") as stream:
        assert isinstance(stream, TextIOWrapper)
        guard_stream(stream)
        display = ProgressDisplay(stream, clock.monotonic)
        clock.block(1.0)
        display.show(Progress("reading", 1, 2))
        assert seen.read(100) == b"\r\x1b[Jreading: 1 of 2  [###############---------------]"
        display.clear()
        assert seen.read(100) == b"\r\x1b[J"


def test_a_terminal_that_obeys_nothing_gets_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    clock, terminal = FakeClock(), Terminal()
    display = ProgressDisplay(terminal, clock.monotonic)
    clock.block(11.0)
    display.show(Progress("reading", 1, 2))
    assert terminal.getvalue() == "reading: 1 of 2\n"


def test_without_a_terminal_a_line_comes_each_ten_seconds() -> None:
    clock, stream = FakeClock(), StringIO()
    display = ProgressDisplay(stream, clock.monotonic)
    for done in range(0, 2500, 100):
        display.show(Progress("reading manifests", done, 2500))
        clock.block(1.0)
    display.show(Progress("reading manifests", 2500, 2500))
    assert stream.getvalue() == "reading manifests: 1,000 of 2,500\nreading manifests: 2,000 of 2,500\n"


@pytest.mark.parametrize(("columns", "width"), [(200, 30), (50, 10), (38, 0), (20, 0)])
def test_a_bar_fits_the_terminal(columns: int, width: int) -> None:
    bar = format_bar(Progress("reading manifests", 20_000, 40_000), columns)
    assert len(bar) < columns
    assert (bar.count("#") + bar.count("-"), bar.count("#")) == (width, width // 2)


def test_each_item_counts_once_it_is_done_with_or_without_a_listener() -> None:
    reports: list[Progress] = []
    with report_progress_to(reports.append):
        assert [*track_items("ab", "reading", 2)] == ["a", "b"]
    assert reports == [Progress("reading", done, 2) for done in range(3)]
    assert [*track_items("ab", "reading", 2)] == ["a", "b"]
    assert len(reports) == 3


def test_files_are_counted_as_a_check_reads_them(tmp_path: Path) -> None:
    (tmp_path / "gvc.yaml").write_text(GVC)
    for number in range(3):
        (tmp_path / f"{number}.yaml").write_text(workload(f"web-{number}"))
    reports: list[Progress] = []
    with report_progress_to(reports.append):
        check_folder(tmp_path, ManifestContext("acme"), ExternalResources(settings_unknown=True))
    assert reports == [Progress("reading manifests", done, 4) for done in range(5)]


def test_manifests_are_counted_as_a_conversion_checks_them() -> None:
    drafts = [Draft(Kind.GVC, "", name, {"kind": "gvc", "name": name}) for name in ("shop", "ops")]
    reports: list[Progress] = []
    with report_progress_to(reports.append):
        assert check_drafts(drafts, "compose.yaml", lambda _: ()) == []
    assert reports == [Progress("checking manifests", done, 2) for done in range(3)]


def test_pages_are_counted_as_a_restore_copies_them(tmp_path: Path) -> None:
    sandbox = CommandSandbox(tmp_path)
    sandbox.applied()
    assert sandbox.run("backup", "saved.sqlite").code == 0
    reports: list[Progress] = []
    with report_progress_to(reports.append):
        restore_backup(tmp_path / "saved.sqlite", sandbox.state / FILE, force=True)
    assert {report.what for report in reports} == {"restoring pages"}
    assert reports[-1].done == reports[-1].total > 0


def test_the_reason_of_a_wait_is_shown_each_ten_seconds() -> None:
    clock, stream = FakeClock(), StringIO()
    with WaitDisplay(stream, clock.monotonic) as display:
        for number in range(25):
            display.show([f"waiting: {number}", "and more"])
            clock.block(1.0)
    assert stream.getvalue() == "waiting: 10\nwaiting: 20\n"


def test_a_terminal_shows_all_that_is_waited_for_and_is_left_clean() -> None:
    terminal = Terminal()
    with WaitDisplay(terminal) as display:
        display.show(["waiting: 1", "workload/shop/api: loading"])
    assert "waiting: 1\nworkload/shop/api: loading\n" in terminal.getvalue()
    assert terminal.getvalue().endswith("\x1b[2A\x1b[J\x1b[?25h\x1b[?7h")


def test_a_daemon_logs_it() -> None:
    clock = FakeClock()
    progress = ProgressLog(clock.monotonic)
    with capture_logs() as lines:
        for done in (1, 2, 3):
            progress.report(Progress("reading manifests", done, 3))
            clock.block(11.0)
    assert [(line["event"], line["done"]) for line in lines] == [("progress", 2)]
