"""Removing what workloads left: all of it, and nothing else."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reconciler.engines.host.disk.removal import remove_tree
from reconciler.engines.host.provisioning.files import MEMORY
from tests.support.examples import examples


def test_links_are_removed_and_what_they_lead_to_stays(tmp_path: Path) -> None:
    outside, victim = tmp_path / "outside", tmp_path / "victim"
    outside.mkdir()
    (outside / "file").write_text("x")
    (victim / "a" / "b").mkdir(parents=True)
    (victim / "dir").symlink_to(outside)
    (victim / "a" / "file").symlink_to(outside / "file")
    (victim / "a" / "b" / "up").symlink_to("../..")
    (victim / "a" / "b" / "nowhere").symlink_to("/nowhere")
    remove_tree(victim)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["file", "outside"]


def test_a_link_itself_a_file_and_nothing_are_fine(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "kept")
    (tmp_path / "file").write_text("x")
    for name in ("link", "file", "nothing"):
        remove_tree(tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


def test_depth_is_no_defence(tmp_path: Path) -> None:
    """More levels than Python would recurse into; in memory, since a busy disk takes long over each."""
    with TemporaryDirectory(dir=MEMORY if MEMORY.is_mount() else tmp_path) as name:
        folder = os.open(name, os.O_RDONLY)
        for _ in range(1100):
            os.mkdir("d", dir_fd=folder)
            inner = os.open("d", os.O_RDONLY, dir_fd=folder)
            os.close(folder)
            folder = inner
        os.close(folder)
        remove_tree(Path(name) / "d")
        assert list(Path(name).iterdir()) == []


@contextmanager
def unprivileged() -> Iterator[Path]:
    """A directory of a user without rights, as whom everything is done meanwhile."""
    with TemporaryDirectory() as name:
        rooted = os.geteuid() == 0
        if rooted:
            os.chown(name, 65534, -1)
            os.seteuid(65534)
        try:
            yield Path(name)
        finally:
            if rooted:
                os.seteuid(0)


def test_directories_that_were_closed_are_opened() -> None:
    with unprivileged() as folder:
        (folder / "top" / "shut" / "inner").mkdir(parents=True)
        (folder / "top" / "shut" / "file").write_text("x")
        for path in (folder / "top/shut/inner", folder / "top/shut", folder / "top"):
            path.chmod(0)
        remove_tree(folder / "top")
        assert list(folder.iterdir()) == []


def test_a_file_that_cannot_be_removed_is_an_error() -> None:
    with unprivileged() as path:
        (path / "top" / "inner").mkdir(parents=True)
        path.chmod(0o500)
        with pytest.raises(PermissionError):
            remove_tree(path / "top")
        path.chmod(0o700)


TREES = st.recursive(st.just("file") | st.just("link"), lambda inner: st.dictionaries(st.sampled_from("abc"), inner))


@settings(max_examples=examples(40))
@given(TREES)
def test_any_tree_goes(tree: object) -> None:
    with TemporaryDirectory() as name:
        (Path(name) / "kept").write_text("x")
        grow(Path(name) / "top", tree)
        remove_tree(Path(name) / "top")
        assert [path.name for path in Path(name).iterdir()] == ["kept"]


def grow(path: Path, tree: object) -> None:
    """Make ``tree`` at ``path``."""
    if isinstance(tree, dict):
        path.mkdir()
        for name, inner in tree.items():
            grow(path / name, inner)
    elif tree == "file":
        path.write_text("x")
    else:
        path.symlink_to("..")
