"""Files of containers: the mounts of the cases, whose they are, where they lie, and that nothing of them stays."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import pytest

from reconciler.engines.host.disk.ownership import Owner
from reconciler.engines.host.provisioning.files import MEMORY, Files
from reconciler.engines.host.runtimes.process.container_view import ContainerViews, describe_unreachable_path
from reconciler.engines.host.runtimes.process.limitations import list_limitations
from reconciler.engines.host.runtimes.process.plugin import ABLE
from reconciler.engines.host.runtimes.protocol import ContainerId, Mount
from reconciler.engines.workload.spec_builder import AppliedWorkload, workload_spec
from reconciler.errors import EngineError
from reconciler.model.key import Key, Kind
from reconciler.model.kinds.workload import Container
from reconciler.private_files import set_locked
from tests.engines.host.provisioning.kit import attach_volumes, container_of, spec_of, vault
from tests.support.cases import cases
from tests.support.programs import only_root, skip_unless, small_disk

CANARY = "correct-horse"
WEB = Key(Kind.WORKLOAD, "shop", "web")
PLACE = ContainerId(WEB, "web-1", "main")
SECRETS = {"s": {"type": "dictionary", "data": {"user": "shop", "password": CANARY}}}
AT_S = {"uri": "platform://secret/s", "path": "/s"}
USER, GROUP = 61234, 61235
"""Belongs to no user of any machine."""

OURS = Owner()

as_root = only_root("only root gives files away")
in_memory = skip_unless(MEMORY.is_mount(), f"{MEMORY} is no file system in memory here")


class ProvidedFiles(NamedTuple):
    """The mounts of a process and its private directories."""

    mounts: tuple[Mount, ...]
    volumes: Path
    home: Path
    scratch: Path


def provide(
    files: Files, container: Container, container_id: ContainerId, owner: Owner, index: int = 1
) -> ProvidedFiles:
    """The files of a container, and the view of a process on them."""
    attach_volumes(files.endpoints.parent, container, index, owner)
    made = files.provide(container_id, index, container, owner)
    view = ContainerViews(files.endpoints.parent, "root").make(made, {}, "")
    return ProvidedFiles(made.mounts, Path(view.volumes), Path(view.defaults["HOME"]), Path(view.defaults["TMPDIR"]))


def give(
    files: Files, *volumes: dict[str, str], container_id: ContainerId = PLACE, owner: Owner = OURS, index: int = 1
) -> ProvidedFiles:
    """What a container with ``volumes`` gets."""
    return provide(files, container_of({"volumes": list(volumes)}), container_id, owner, index)


def on_disk(root: Path, **options: Any) -> Files:
    """Files that lie below ``root``, secrets too."""
    return Files(root, vault(SECRETS), memory=None, **options)


def tree(view: Path) -> Iterator[str]:
    """What a view holds, as cases write it."""
    for path in sorted(view.rglob("*")):
        if path.is_symlink() and path.is_dir() and os.access(path, os.W_OK) and not any(path.iterdir()):
            yield f"/{path.relative_to(view)} rw"
        inside = path.rglob("*") if path.is_symlink() and path.is_dir() else (path,)
        for file in sorted(inside):
            if file.is_file():
                content = file.read_bytes().decode("latin-1").encode("unicode_escape").decode()
                yield f"/{file.relative_to(view)} {stat.S_IMODE(file.stat().st_mode):04o} {content}"


@pytest.mark.parametrize("case", cases("environment/mounts.yaml"))
def test_the_mounts_are_as_their_case_expects(tmp_path: Path, case: dict[str, Any]) -> None:
    scheme = case.get("scheme", "platform")
    files = Files(tmp_path, vault(case.get("secrets", {})), scheme, memory=None)
    container = container_of({"volumes": case["volumes"]}, scheme)
    if "error" in case:
        with pytest.raises(EngineError) as caught:
            files.provide(PLACE, 1, container, OURS)
        assert f"{caught.value.reason} {caught.value}" == case["error"]
        assert not any(tmp_path.iterdir())
        return
    provided = provide(files, container, PLACE, OURS)
    assert sorted(tree(provided.volumes)) == sorted(case["tree"])
    spec = spec_of({"volumes": case["volumes"]}, scheme=scheme)
    wanted = workload_spec(AppliedWorkload(WEB, "here", spec, 1, ""), "")
    assert [line for line in list_limitations(wanted, ABLE) if " is not mounted at " in line] == case.get("lacking", [])
    assert [(provided.volumes / mount.path.lstrip("/")).resolve() for mount in provided.mounts] == [
        mount.source.resolve() for mount in provided.mounts
    ]
    assert {mount.path for mount in provided.mounts if not mount.read_only} == {
        each.partition(" ")[0] for each in case["tree"] if each.endswith(" rw")
    }


def test_each_container_has_a_home_of_its_own_that_begins_empty_at_each_start(tmp_path: Path) -> None:
    files = on_disk(tmp_path)
    main, side = give(files), give(files, container_id=ContainerId(WEB, "web-1", "side"))
    assert len({main.home, main.scratch, side.home, side.scratch}) == 4
    (main.home / "left").write_text("x")
    (side.home / "kept").write_text("x")
    assert list(give(files).home.iterdir()) == []
    assert [path.name for path in side.home.iterdir()] == ["kept"]


def test_containers_of_a_replica_share_scratch_by_address_and_path(tmp_path: Path) -> None:
    files = on_disk(tmp_path)
    first = give(files, {"uri": "scratch://a", "path": "/a"})
    (first.volumes / "a" / "file").write_text("x")
    side = ContainerId(WEB, "web-1", "side")
    other = give(
        files,
        {"uri": "scratch://a", "path": "/a"},
        {"uri": "scratch://a", "path": "/b"},
        {"uri": "scratch://b", "path": "/c"},
        container_id=side,
    )
    assert [[each.name for each in (other.volumes / name).iterdir()] for name in "abc"] == [["file"], [], []]
    stranger = give(files, {"uri": "scratch://a", "path": "/a"}, container_id=ContainerId(WEB, "web-2", "main"))
    assert list((stranger.volumes / "a").iterdir()) == []


def test_a_volume_belongs_to_its_place_in_the_workload_and_outlives_replicas(tmp_path: Path) -> None:
    files, mount = on_disk(tmp_path), {"uri": "platform://volumeset/data", "path": "/data"}
    (give(files, mount).volumes / "data" / "file").write_text("x")
    files.clear(WEB, "web-1")
    assert (files.volume("shop", "data", 1) / "file").read_text() == "x"
    assert (give(files, mount).volumes / "data" / "file").exists()
    assert not (give(files, mount, index=0).volumes / "data" / "file").exists()


def test_a_secret_that_changed_is_there_whole_at_the_next_start(tmp_path: Path) -> None:
    secrets = {"s": {"type": "dictionary", "data": {"old": CANARY}}}
    files = Files(tmp_path, lambda key: vault(secrets)(key), memory=None)
    give(files, AT_S)
    secrets["s"] = {"type": "dictionary", "data": {"new": "battery-staple"}}
    assert sorted(each.name for each in (give(files, AT_S).volumes / "s").iterdir()) == ["___platform___.secret", "new"]
    assert not holding(tmp_path, CANARY)


def test_partial_files_of_a_crash_block_no_start(tmp_path: Path) -> None:
    files = on_disk(tmp_path)
    for folder in (tmp_path / "secrets/shop/web/web-1", tmp_path / "scratch/shop/web/web-1/.own"):
        for name in (".main.new", ".main.old"):
            (folder / name / "s").mkdir(parents=True)
            (folder / name / "s" / "user").write_text("half")
    provided = give(files, AT_S)
    assert (provided.volumes / "s" / "user").read_text() == "shop"
    assert not holding(tmp_path, "half")


def holding(folder: Path, text: str) -> list[Path]:
    """Files below ``folder`` that hold ``text``."""
    return [path for path in folder.rglob("*") if path.is_file() and text.encode() in path.read_bytes()]


@in_memory
def test_secrets_lie_in_memory_and_go_with_their_replica(tmp_path: Path) -> None:
    files = Files(tmp_path, vault(SECRETS))
    try:
        sources = [
            give(files, AT_S, container_id=ContainerId(WEB, name, "main")).mounts[0].source
            for name in ("web-1", "web-2")
        ]
        assert all(source.is_relative_to(MEMORY) for source in sources)
        assert not [path for path in holding(tmp_path, CANARY) if not path.resolve().is_relative_to(MEMORY)]
        base = MEMORY / sources[0].relative_to(MEMORY).parts[0]
        assert stat.S_IMODE(base.stat().st_mode) == 0o700
        files.clear(WEB, "web-1")
        assert [source.exists() for source in sources] == [False, True]
    finally:
        files.prune(())
    assert not base.exists()


@in_memory
def test_a_directory_in_memory_of_another_user_is_not_used(tmp_path: Path) -> None:
    files = Files(tmp_path, vault(SECRETS))
    source = give(files, AT_S).mounts[0].source
    base = MEMORY / source.relative_to(MEMORY).parts[0]
    files.prune(())
    (tmp_path / "elsewhere").mkdir()
    base.symlink_to(tmp_path / "elsewhere")
    try:
        assert give(files, AT_S).mounts[0].source.is_relative_to(tmp_path / "secrets")
    finally:
        base.unlink()
    assert not any((tmp_path / "elsewhere").iterdir())
    base.mkdir()
    base.chmod(0o777)
    try:
        assert give(files, AT_S).mounts[0].source.is_relative_to(tmp_path / "secrets")
    finally:
        base.rmdir()


def test_clearing_removes_all_but_volumes_however_often(tmp_path: Path) -> None:
    files = on_disk(tmp_path)
    give(files, AT_S, {"uri": "scratch://a", "path": "/a"}, {"uri": "platform://volumeset/data", "path": "/data"})
    for _ in range(2):
        files.clear(WEB, "web-1")
        assert sorted(each.name for each in tmp_path.iterdir()) == ["volumes"]
    give(files, AT_S)


def test_sweeping_leaves_what_replicas_have(tmp_path: Path) -> None:
    files = on_disk(tmp_path)
    for name in ("web-1", "web-2", "web-3"):
        give(files, AT_S, {"uri": "scratch://a", "path": "/a"}, container_id=ContainerId(WEB, name, "main"))
    files.prune({(WEB, "web-2"), (Key(Kind.WORKLOAD, "ops", "web"), "web-1")})
    left = {path.name for folder in ("secrets", "scratch") for path in (tmp_path / folder / "shop" / "web").iterdir()}
    assert left == {"web-2"}


@in_memory
def test_replicas_may_come_and_go_in_two_threads() -> None:
    with TemporaryDirectory(dir=MEMORY) as root:
        files = on_disk(Path(root))

        def come_and_go(name: str) -> None:
            for _ in range(150):
                give(files, AT_S, container_id=ContainerId(WEB, name, "main"))
                files.clear(WEB, name)

        usual = sys.getswitchinterval()
        sys.setswitchinterval(1e-5)
        try:
            with ThreadPoolExecutor(2) as threads:
                list(threads.map(come_and_go, ("web-1", "web-2")))
        finally:
            sys.setswitchinterval(usual)
        assert list(Path(root).iterdir()) == []


def test_a_state_directory_that_is_gone_is_not_made_anew(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir()
    set_locked(state, True)
    try:
        give(on_disk(state / "host" / "here"), {"uri": "scratch://a", "path": "/a"})
        state.rename(tmp_path / "moved")
        with pytest.raises(EngineError, match="the state directory was deleted"):
            give(on_disk(state / "host" / "here"), {"uri": "scratch://a", "path": "/a"})
        assert not state.exists()
    finally:
        set_locked(state, False)


def test_names_that_leave_the_folder_are_refused(tmp_path: Path) -> None:
    files = on_disk(tmp_path / "root")
    for name in ("..", "", "a/b", "../../x"):
        with pytest.raises(EngineError, match="is not the name of a file"):
            give(files, AT_S, container_id=ContainerId(WEB, name, "main"))
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_reported_and_leaves_no_partial_files(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "size=24m") as disk:
        large = {"s": {"type": "opaque", "data": {"payload": "x" * (512 << 10)}}}
        files = Files(disk, vault(large), memory=None)
        (disk / "ballast").write_bytes(b"x" * (os.statvfs(disk).f_bavail * os.statvfs(disk).f_bsize - (256 << 10)))
        with pytest.raises(EngineError) as caught:
            give(files, AT_S)
        assert caught.value.reason == "DiskFull"
        assert not (disk / "secrets/shop/web/web-1/main").exists()
        (disk / "ballast").unlink()
        assert (give(files, AT_S).volumes / "s" / "payload").stat().st_size == 512 << 10


@contextmanager
def open_place() -> Iterator[Path]:
    """A directory that every user gets to."""
    with TemporaryDirectory(dir="/tmp") as name:
        Path(name).chmod(0o755)
        yield Path(name)


def reads(path: Path, user: int, group: int) -> bool:
    """Whether a program of ``user`` can read what is at ``path``."""
    ended = subprocess.run(["/bin/cat", str(path)], user=user, group=group, extra_groups=[], capture_output=True)
    return ended.returncode == 0


@as_root
@pytest.mark.parametrize("memory", [None, MEMORY])
def test_a_mounted_secret_is_read_by_its_user_and_not_by_others_of_its_group(memory: Path | None) -> None:
    with open_place() as root:
        (root / "host").mkdir(mode=0o711)
        files = Files(root / "host", vault(SECRETS), memory=memory)
        try:
            provided = give(files, AT_S, owner=Owner(USER, GROUP))
            password = provided.volumes / "s" / "password"
            assert list(describe_unreachable_path(root / "host", Owner(USER, GROUP))) == []
            others = ((USER, USER), (GROUP, GROUP), (65534, 65534))
            assert [reads(password, *who) for who in others] == [True, False, False]
            assert stat.S_IMODE(password.stat().st_mode) == 0o400
            provided = give(files, AT_S, owner=Owner(USER))
            assert [reads(password, *who) for who in others] == [True, False, False]
        finally:
            files.clear(WEB, "web-1")


@as_root
def test_the_group_owns_mounted_volumes_and_what_is_made_in_them(tmp_path: Path) -> None:
    files = on_disk(tmp_path)
    mounts = ({"uri": "platform://volumeset/data", "path": "/data"}, {"uri": "scratch://a", "path": "/a"})
    provided = give(files, *mounts, owner=Owner(None, GROUP))
    for name in ("data", "a"):
        (provided.volumes / name / "file").write_text("x")
        found = (provided.volumes / name / "file").stat()
        assert (found.st_uid, found.st_gid) == (0, GROUP)
        assert stat.S_IMODE((provided.volumes / name).stat().st_mode) == 0o2770


@as_root
def test_a_volume_changes_hands_with_all_that_is_in_it_and_nothing_else(tmp_path: Path) -> None:
    files, mount = on_disk(tmp_path), {"uri": "platform://volumeset/data", "path": "/data"}
    outside = tmp_path / "outside"
    outside.write_text("x")
    volume = give(files, mount).mounts[0].source
    (volume / "deep" / "er").mkdir(parents=True)
    (volume / "deep" / "er" / "file").write_text("x")
    (volume / "link").symlink_to(outside)
    (volume / "up").symlink_to("..")
    give(files, mount, owner=Owner(USER, GROUP))
    assert {(p.lstat().st_uid, p.lstat().st_gid) for p in (volume, *volume.rglob("*"))} == {(USER, GROUP)}
    assert (outside.stat().st_uid, volume.parent.stat().st_uid) == (0, 0)


@as_root
def test_a_user_that_cannot_reach_its_files_is_reported(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    give(on_disk(tmp_path / "host"), owner=Owner(USER))
    sentence = f"user {USER} cannot reach its files: {closed(tmp_path)} does not let others through."
    assert list(describe_unreachable_path(tmp_path / "host", Owner(USER))) == [sentence]


def closed(path: Path) -> Path:
    """The first directory on the way to ``path`` that is closed to others."""
    return next(each for each in (*reversed(path.parents), path) if not each.stat().st_mode & stat.S_IXOTH)
