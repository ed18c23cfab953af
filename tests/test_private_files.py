"""Files of the state directory: nothing of anybody else is changed through them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from reconciler.errors import UsageError
from reconciler.private_files import open_regular


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
