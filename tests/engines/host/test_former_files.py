"""Files that an older program left in the directory of a location: what the engine makes of them when it opens."""

from __future__ import annotations

from pathlib import Path

import pytest

from reconciler.engines.host.endpoints import move_endpoints
from tests.engines.host.kit import Host, played


def test_endpoints_move_to_their_new_directory_and_are_found_at_the_former_one(tmp_path: Path) -> None:
    here = tmp_path / "here"

    async def story(host: Host) -> None:
        await host.apply(1)
        await host.engine.close()
        listed = (here / "endpoints/shop/web.json").read_bytes()
        (here / "endpoints").rename(here / "pool")
        for _ in range(2):
            await host.restart()
            assert (here / "endpoints/shop/web.json").read_bytes() == listed
            assert (here / "pool/shop/web.json").read_bytes() == listed
            assert not (here / "endpoints").is_symlink()

    played(tmp_path, story)


@pytest.mark.parametrize("left", ["pool", "both", "between", "nothing"])
def test_a_move_of_the_endpoints_that_broke_off_is_ended(tmp_path: Path, left: str) -> None:
    if left in ("pool", "both"):
        (tmp_path / "pool").mkdir()
        (tmp_path / "pool/file").write_text("newer")
    if left in ("both", "between"):
        (tmp_path / "endpoints").mkdir()
        (tmp_path / "endpoints/file").write_text("newer" if left == "between" else "older")
    if left == "between":
        (tmp_path / ".pool.part").symlink_to("endpoints")
    move_endpoints(tmp_path)
    if left == "nothing":
        assert list(tmp_path.iterdir()) == []
        return
    assert sorted(path.name for path in tmp_path.iterdir()) == ["endpoints", "pool"]
    assert {(tmp_path / name / "file").read_text() for name in ("endpoints", "pool")} == {"newer"}
    assert (tmp_path / "pool").readlink() == Path("endpoints")


def test_a_move_of_the_endpoints_that_fails_leaves_them_where_they_are(tmp_path: Path) -> None:
    (tmp_path / "pool").mkdir()
    (tmp_path / "pool/file").write_text("newer")
    (tmp_path / "endpoints").write_text("in the way")
    move_endpoints(tmp_path)
    assert (tmp_path / "pool/file").read_text() == "newer"
