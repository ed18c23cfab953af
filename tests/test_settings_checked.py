"""A check of settings against their schema is remembered, and nothing but a faster start follows from it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from reconciler.documents.schema.validator import is_valid
from reconciler.settings import SettingsError, load_settings, remember_checked
from reconciler.settings.checked import FILE, was_checked
from tests.support.work import counted

GOOD = b"org: acme\nstate: state\nsources:\n  - {name: main, url: manifests.git}\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Settings whose state directory has a daemon that has checked them."""
    (tmp_path / "state").mkdir()
    path = tmp_path / "settings.yaml"
    path.write_bytes(GOOD)
    remember_checked(path, tmp_path / "state")
    assert was_checked(GOOD, tmp_path / "state")
    return path


def test_settings_that_were_checked_are_loaded_without_a_check(file: Path) -> None:
    with counted() as work:
        known = load_settings(file)
    assert work.calls_of(is_valid) == 0
    (file.parent / "state" / FILE).unlink()
    with counted() as work:
        assert load_settings(file) == known
    assert work.calls_of(is_valid) == 1


@pytest.mark.parametrize("change", [b"ordinary: 1\n", b"drift: {interval: 7}\n", b"\n# a comment\nsorces: []\n"])
def test_changed_settings_are_checked_again(file: Path, change: bytes) -> None:
    file.write_bytes(GOOD + change)
    with pytest.raises(SettingsError):
        load_settings(file)


@pytest.mark.parametrize("bad", [b"- a\n", b"a: [\n", b"state: 7\norg: acme\n", b"---\na: 1\n---\nb: 1\n", b""])
def test_settings_that_do_not_fit_are_not_remembered(file: Path, bad: bytes) -> None:
    state = file.parent / "state"
    file.write_bytes(bad)
    remember_checked(file, state)
    assert was_checked(GOOD, state)
    assert not was_checked(bad, state)


def test_another_version_checks_again(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reconciler.settings.checked.__version__", "another")
    assert not was_checked(GOOD, file.parent / "state")


@pytest.mark.parametrize("content", [b"", b"0" * 63, b"0" * 64, b"\xff\n" * 1000])
def test_a_torn_or_strange_file_means_nothing(file: Path, content: bytes) -> None:
    marker = file.parent / "state" / FILE
    whole = marker.read_bytes()
    marker.write_bytes(content)
    assert not was_checked(GOOD, file.parent / "state")
    marker.write_bytes(whole + b"\n")
    assert not was_checked(GOOD, file.parent / "state")
    assert load_settings(file).org == "acme"


def test_no_link_is_followed_and_no_fault_of_the_disk_is_one_of_the_daemon(file: Path, tmp_path: Path) -> None:
    marker, other = file.parent / "state" / FILE, tmp_path / "other"
    other.write_bytes(marker.read_bytes())
    marker.unlink()
    marker.symlink_to(other)
    assert not was_checked(GOOD, file.parent / "state")
    before = other.read_bytes()
    file.write_bytes(GOOD + b"\n")
    remember_checked(file, file.parent / "state")
    assert other.read_bytes() == before
    marker.unlink()
    os.mkfifo(marker)
    remember_checked(file, file.parent / "state")
    remember_checked(tmp_path / "missing.yaml", file.parent / "state")
    remember_checked(file, tmp_path / "missing")
    assert load_settings(file).org == "acme"
