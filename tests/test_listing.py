"""Directories that others change while they are listed."""

from __future__ import annotations

import ast
import shutil
from pathlib import Path

import pytest

from reconciler.listing import list_paths
from reconciler.review.folder import list_manifest_paths
from tests.project.tree import modules, walk

UNCHANGED = {
    "reconciler/cli/__init__.py": "the files of this program",
    "reconciler/cli/commands/eject.py": "whether the directory of an argument is empty; it is never removed",
    "reconciler/cli/commands/init.py": "a directory that the command makes",
    "reconciler/cli/commands/up.py": "the directory of the person who calls it",
    "reconciler/local_state.py": "the user's own directory of state; `up` and `down` are called by hand",
    "reconciler/cli/service/install.py": "units that a package or the administrator installed",
    "reconciler/cli/service/uninstall.py": "the daemon is stopped before",
    "reconciler/demo.py": "whether the directory of an argument is empty; it is never removed",
    "reconciler/engines/host/disk/ownership.py": "it raises OSError, and the start is tried again",
    "reconciler/engines/host/runtimes/podman/programs.py": "an error of the system ends the attempt",
}
"""Module that lists by a method of Path → why nothing vanishes there, or why an error does no harm."""


def fill(top: Path, *names: str) -> None:
    for name in names:
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_text("")


def test_paths_that_match_are_listed_in_order(tmp_path: Path) -> None:
    fill(tmp_path, "b/y.json", "b/x.json", "a/z.json", "a/z.txt", "a/deep/z.json", "c.json")
    assert [str(path.relative_to(tmp_path)) for path in list_paths(tmp_path, "*/*.json")] == [
        "a/z.json",
        "b/x.json",
        "b/y.json",
    ]
    assert list(list_paths(tmp_path, "*/deep/*")) == [tmp_path / "a" / "deep" / "z.json"]


def test_what_vanishes_meanwhile_is_left_out(tmp_path: Path) -> None:
    fill(tmp_path, "a/x/1", "b/x/1", "c/x/1", "d/x/1")
    paths = list_paths(tmp_path, "*/*/*")
    assert next(paths) == tmp_path / "a" / "x" / "1"
    shutil.rmtree(tmp_path / "b")
    shutil.rmtree(tmp_path / "c")
    (tmp_path / "c").write_text("a file now")
    assert list(paths) == [tmp_path / "d" / "x" / "1"]
    shutil.rmtree(tmp_path)
    assert list(list_paths(tmp_path, "*")) == []


def test_a_directory_that_cannot_be_read_is_an_error_not_an_empty_one(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(OSError, match="Too many levels of symbolic links"):
        list(list_paths(tmp_path, "*/*"))


def test_validate_leaves_out_a_manifest_that_vanishes_meanwhile(tmp_path: Path) -> None:
    fill(tmp_path, "a.yaml", "b.yaml", "c/d.yaml")
    manifest_paths = list_manifest_paths(tmp_path)
    others = {tmp_path / "a.yaml", tmp_path / "b.yaml"} - {tmp_path / next(manifest_paths)}
    others.pop().unlink()
    assert list(manifest_paths) == ["c/d.yaml"]


def test_every_listing_bears_that_a_directory_vanishes() -> None:
    methods = {"glob", "rglob", "iterdir"}
    names = {
        path
        for path, module in modules().items()
        for node in walk(module)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in methods
    }
    assert names == UNCHANGED.keys(), "use reconciler.listing.list_paths, or add the reason"
