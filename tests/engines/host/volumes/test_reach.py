"""The directories above volumes: others get through them, whoever has made them, and see nothing else."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from reconciler.engines.host.disk.directories import LISTED, make_traversable
from reconciler.engines.host.volumes.layout import LastCommand, VolumeFiles, VolumeRecord, VolumeState
from tests.engines.host.volumes.kit import Disk

FIRST: dict[str, Callable[[VolumeFiles], object]] = {
    "record": lambda files: files.write_record(VolumeRecord("directory", 10, VolumeState.READY)),
    "command": lambda files: files.write_command(LastCommand("id", "2026-11-27T00:00:00Z")),
    "lock": lambda files: files.write_lock("workload/shop/db replica db-0"),
    "import": lambda files: files.make_directory(files.partial / "import"),
    "data": lambda files: files.make_reachable(),
}
"""Each thing of a volume that may be the first."""


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def above(files: VolumeFiles) -> list[int]:
    """The modes of the directories above a volume, below that of the location."""
    return [mode(folder) for folder in [*files.path.parents][:3]]


@pytest.mark.parametrize("first", FIRST)
def test_the_modes_above_a_volume_do_not_depend_on_what_of_it_is_made_first(tmp_path: Path, first: str) -> None:
    former = os.umask(0o077)
    try:
        files = VolumeFiles(tmp_path, "shop", "data", "0")
        FIRST[first](files)
    finally:
        os.umask(former)
    assert above(files) == [0o711] * 3
    if files.folder.exists():
        assert mode(files.folder) == 0o700


def test_directories_that_somebody_has_closed_are_repaired_at_the_start(tmp_path: Path) -> None:
    disk = Disk(tmp_path / "root", "directory")
    path = disk.attach()
    files = VolumeFiles(disk.root, "shop", "data", "0")
    strange = disk.root / "volumes" / "notes"
    strange.mkdir(mode=0o700)
    (strange / "file").touch()
    for folder in [*path.parents][:3]:
        folder.chmod(0o700)
    disk.reopen()
    assert above(files) == [0o711] * 3
    closed = (files.folder, path, strange, disk.root)
    assert [mode(each) for each in closed] == [0o700] * 4, "nothing else is opened"


def test_no_link_is_followed_and_wider_modes_stay(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir(mode=0o700)
    (tmp_path / "here").symlink_to(outside)
    with pytest.raises(NotADirectoryError):
        make_traversable(tmp_path, tmp_path / "here" / "inner")
    assert mode(outside) == 0o700
    assert not any(outside.iterdir())
    make_traversable(tmp_path, tmp_path / "a" / "b", LISTED)
    make_traversable(tmp_path, tmp_path / "a" / "b")
    assert [mode(tmp_path / "a"), mode(tmp_path / "a" / "b")] == [LISTED] * 2
