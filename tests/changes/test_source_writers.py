"""Writers of sources stay open between changes, each for one thread at a time, and see what others do meanwhile."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from reconciler.changes.requests import ChangeRequest, ResourceEdit
from reconciler.changes.write import CheckedChange
from reconciler.changes.writers import SourceWriters
from reconciler.clock import SystemClock
from reconciler.errors import RecordsError, RefusedError
from reconciler.model.key import Key
from reconciler.settings import Settings, load_settings
from tests.support.command_sandbox import CommandSandbox

WEB = Key.parse("workload/shop/web")


class WriterHarness:
    """A sandbox whose shop is applied, and writers of its source."""

    def __init__(self, path: Path) -> None:
        self.sandbox = CommandSandbox(path)
        self.sandbox.applied()
        self.settings: Settings = load_settings(self.sandbox.settings)
        [self.source] = self.settings.sources
        self.writers = SourceWriters(self.settings, SystemClock())

    def tag(self, number: int) -> CheckedChange:
        """Set a tag of a workload."""
        edit = ResourceEdit(WEB, "shop/web.yaml", {}, {}, patch=lambda was: {**was, "tags": {"number": str(number)}})
        request = ChangeRequest(str(number), "user/ann", f"Number {number}", (edit,))
        [outcome] = self.writers.write(self.source, [request], is_review=False)
        assert isinstance(outcome, CheckedChange), outcome
        return outcome


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[WriterHarness]:
    """Writers that are closed at the end."""
    sandbox = WriterHarness(tmp_path)
    with closing(sandbox.writers):
        yield sandbox


def test_the_next_change_has_the_writer_of_the_one_before(harness: WriterHarness) -> None:
    with harness.writers.borrow(harness.source) as first:
        pass
    with harness.writers.borrow(harness.source) as second, harness.writers.borrow(harness.source) as third:
        assert second is first
        assert third is not first, "each is used by one thread at a time"


def test_a_writer_whose_use_failed_is_not_used_again(harness: WriterHarness) -> None:
    with pytest.raises(RefusedError), harness.writers.borrow(harness.source) as first:
        raise RefusedError("no")
    with harness.writers.borrow(harness.source) as second:
        assert second is not first
    with pytest.raises(RecordsError):
        first.records.events.list()


def test_a_writer_in_use_is_closed_after_it(harness: WriterHarness) -> None:
    with harness.writers.borrow(harness.source) as writer:
        harness.writers.close()
        assert writer.records.events.list()
    with pytest.raises(RecordsError):
        writer.records.events.list()


def test_what_others_do_between_two_changes_is_seen(harness: WriterHarness) -> None:
    harness.tag(1)
    web = harness.sandbox.repo.git("show", "main:shop/web.yaml")
    harness.sandbox.commit({"shop/web.yaml": f"{web}\ndescription: by hand\n"})
    harness.sandbox.repo.git("gc", "--quiet", "--prune=now")
    harness.tag(2)
    harness.sandbox.applied()
    harness.tag(3)
    assert "description: by hand" in harness.sandbox.repo.git("show", "main:shop/web.yaml")
    subjects = harness.sandbox.repo.git("log", "--format=%s", "main").splitlines()
    assert [line for line in subjects if line.startswith("Number")] == ["Number 3", "Number 2", "Number 1"]


def collected_packs(harness: WriterHarness) -> list[str]:
    """Packs that are open in this process and that Git has deleted, once those that nobody uses are closed."""
    gc.collect()
    opened = [os.readlink(path) for path in Path("/proc/self/fd").iterdir() if path.is_symlink()]
    return [name for name in opened if name.startswith(str(harness.sandbox.path)) and ".pack (deleted)" in name]


def test_packs_that_git_has_collected_do_not_stay_open(harness: WriterHarness) -> None:
    for number in range(5):
        harness.tag(number)
        harness.sandbox.repo.git("gc", "--quiet", "--prune=now")
    harness.tag(5)
    assert collected_packs(harness) == []
