"""Files of the state directory: nothing of anybody else is changed through them."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from reconciler.errors import UsageError
from reconciler.private_files import make_directory, open_regular, set_locked


def test_a_file_that_is_replaced_is_empty_first_and_one_with_a_second_name_stays_as_it_is(tmp_path: Path) -> None:
    other, own = tmp_path / "other", tmp_path / "own"
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    own.write_text("a long text")
    with open(open_regular(own, flags), "w", encoding="utf-8") as file:
        file.write("short")
    assert own.read_text() == "short"
    other.write_text("precious")
    own.unlink()
    own.hardlink_to(other)
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(UsageError, match="second name"):
        open_regular(own, flags)
    assert other.read_text() == "precious"
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("below", ["", "mirrors", "mirrors/main.git"])
def test_a_locked_state_directory_that_was_deleted_is_not_made_anew(tmp_path: Path, below: str) -> None:
    state = tmp_path / "state"
    make_directory(state / below)
    set_locked(state, True)
    try:
        make_directory(state / below)
        shutil.rmtree(state)
        with pytest.raises(FileNotFoundError, match="the state directory was deleted"):
            make_directory(state / below)
        assert not state.exists()
    finally:
        set_locked(state, False)


def test_a_file_in_the_place_of_a_directory_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    for path in (tmp_path / "taken", tmp_path / "taken" / "below"):
        with pytest.raises(FileExistsError):
            make_directory(path)
