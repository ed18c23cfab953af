"""Object stores, mounted by Debian's rclone: what is there is read, and nothing of a mount is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from reconciler.engines.host.runtimes.podman import stores
from reconciler.engines.host.runtimes.podman.folders import ContainerFolders
from reconciler.engines.host.runtimes.podman.stores import FUSE, mount_stores, unmount_below
from reconciler.engines.host.runtimes.podman.tracking import REFRESH_SECONDS
from reconciler.engines.host.runtimes.protocol import StoreMount
from reconciler.errors import EngineError
from reconciler.reasons import Reason
from tests.engines.host.runtimes.podman.kit import KEY, launch, opened, place
from tests.engines.host.runtimes.podman.libpod import Libpod
from tests.engines.host.runtimes.podman.test_plugin import PODMAN, sentences
from tests.support.clock import FakeClock
from tests.support.processes import free_ports
from tests.support.programs import only_root, skip_unless, tool
from tests.support.s3 import ACCESS_KEY, S3, SECRET_KEY, s3
from tests.support.waiting import until

pytestmark = [
    only_root("only root mounts object stores"),
    skip_unless(os.access(FUSE, os.R_OK | os.W_OK), "this machine has no FUSE"),
]
BUCKET = {"a.txt": b"picture\n", "folder/deep é.txt": b"deep\n"}


def store(server: S3, bucket: str = "pictures", key: str = ACCESS_KEY) -> StoreMount:
    """A mount of a bucket of ``server`` at /s3."""
    options = {"type": "s3", "provider": "Other", "env_auth": "false", "region": "eu-central-1"}
    options |= {"access_key_id": key, "secret_access_key": SECRET_KEY, "endpoint": server.endpoint}
    return StoreMount(f"s3://{bucket}", "/s3", bucket, options)


def programs(folder: Path) -> list[int]:
    """Each rclone that has a mount below ``folder``."""
    found = subprocess.run(["pgrep", "-f", f"rclone .* mount .*{folder}/"], capture_output=True, text=True, check=False)
    return [int(pid) for pid in found.stdout.split()]


@contextmanager
def mounted(folder: Path, *mounts: StoreMount) -> Iterator[Path]:
    """The directory of the first of ``mounts``."""
    for name in ("rclone", "fusermount3"):
        tool(name, "rclone fuse3")
    try:
        yield mount_stores(mounts, folder)[0].source
    finally:
        unmount_below(folder)


async def test_a_bucket_is_a_directory_that_all_users_read_and_none_changes(tmp_path: Path) -> None:
    folder = tmp_path / "with space" / "stores"
    with s3(pictures=BUCKET) as server:
        with mounted(folder, store(server)) as at:
            assert sorted(each.name for each in at.iterdir()) == ["a.txt", "folder"]
            assert (at / "folder" / "deep é.txt").read_bytes() == b"deep\n"
            assert (at / "a.txt").stat().st_mode & 0o777 == 0o444
            with pytest.raises(OSError, match="Read-only"):
                (at / "a.txt").write_text("x")
            [pid] = programs(folder)
            environment = Path(f"/proc/{pid}/environ").read_bytes()
            assert SECRET_KEY.encode() in environment
            assert b"HOME=" not in environment, "nothing of the daemon's"
            assert SECRET_KEY.encode() not in Path(f"/proc/{pid}/cmdline").read_bytes()
            assert mount_stores((store(server),), folder)[0].source == at
            assert programs(folder) == [pid], "what is mounted stays"
        await until(lambda: not programs(folder), "the end of rclone")
        assert not list(at.iterdir())


async def test_a_mount_whose_rclone_died_is_made_again(tmp_path: Path) -> None:
    with s3(pictures=BUCKET) as server, mounted(tmp_path, store(server)) as at:
        [pid] = programs(tmp_path)
        os.kill(pid, signal.SIGKILL)
        await until(lambda: not programs(tmp_path), "the end of rclone")
        with pytest.raises(OSError, match="not connected"):
            list(at.iterdir())
        mount_stores((store(server),), tmp_path)
        assert (at / "a.txt").read_bytes() == b"picture\n"


@pytest.mark.parametrize(
    ("bucket", "key", "message"),
    [("nosuch", ACCESS_KEY, "directory not found"), ("pictures", "AKIAWRONG", "InvalidAccessKeyId")],
)
def test_a_bucket_that_cannot_be_read_is_an_error_without_its_keys(
    tmp_path: Path, bucket: str, key: str, message: str
) -> None:
    with s3(pictures=BUCKET) as server:
        with pytest.raises(EngineError, match=message) as raised, mounted(tmp_path, store(server, bucket, key)):
            pass
        assert raised.value.reason is Reason.STORE_MOUNT_FAILED
        assert str(raised.value).startswith(f"s3://{bucket} cannot be mounted: ")
        assert not any(text in str(raised.value) for text in (SECRET_KEY, key))
        assert not programs(tmp_path)
        assert mount_points(tmp_path) == []


def test_an_account_of_azure_is_a_file_in_memory_as_long_as_rclone_starts() -> None:
    options = {"type": "azureblob", "account": "account"}
    principal = '{"appId":"c","password":"hunter2","tenant":"t"}'
    with stores._open_rclone_environment(
        StoreMount("azureblob://account/songs", "/songs", "songs", options, principal)
    ) as variables:
        path = variables["RCLONE_CONFIG_STORE_SERVICE_PRINCIPAL_FILE"]
        assert subprocess.run(["cat", path], capture_output=True, text=True, check=True).stdout == principal
        assert variables["RCLONE_CONFIG_STORE_ACCOUNT"] == "account"
        assert "hunter2" not in "".join(variables.values())
    assert not Path(path).exists()


def test_the_words_of_rclone_have_no_keys_but_the_names_of_places() -> None:
    google = {"type": "google cloud storage", "service_account_credentials": '{"private_key": "hunter2"}'}
    for options, principal in ((google, ""), ({"type": "azureblob", "account": "account"}, '{"password":"hunter2"}')):
        mount = StoreMount("gs://films", "/films", "films", options, principal)
        error = str(stores._make_mount_error(mount, "hunter2 is refused by azureblob/account"))
        assert error == "gs://films cannot be mounted: *** is refused by azureblob/account"


def mount_points(folder: Path) -> list[str]:
    return [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if f" {folder}/" in line]


async def test_a_replica_has_its_stores_until_it_is_removed(tmp_path: Path) -> None:
    async def story(server: S3) -> None:
        service, clock = Libpod(), FakeClock()
        async with opened(tmp_path, tmp_path / "socket", service.transport(), clock=clock) as one:
            opened_now = one.runtime._open
            assert opened_now is not None
            known = opened_now.service.capabilities
            able = msgspec.structs.replace(known, lacks_for_stores="")
            opened_now.launcher._service = opened_now.service._replace(capabilities=able)
            await one.runtime.start(launch(stores=(store(server),)))
            [at] = [each for each in service.named("r-main").body["mounts"] if each["destination"] == "/s3"]
            assert "ro" in at["options"]
            source = Path(at["source"])
            assert (source / "a.txt").read_bytes() == b"picture\n"
            assert source.is_relative_to(ContainerFolders(tmp_path).stores(place()))
            [pid] = programs(tmp_path)
            os.kill(pid, signal.SIGKILL)
            await until(lambda: not programs(tmp_path), "the end of rclone")
            await clock.advance(REFRESH_SECONDS)
            await until(lambda: one.ended, "the end of the container, which cannot read")
            ended = await one.running()
            assert (ended.code, ended.reason) == (137, Reason.STORE_MOUNT_FAILED)
            await one.runtime.start(launch(stores=(store(server),)))
            assert (source / "a.txt").read_bytes() == b"picture\n"
            await clock.advance(REFRESH_SECONDS)
            assert (await one.running()).alive
            await one.runtime.remove(KEY, "r")
            assert not source.exists()
            assert mount_points(tmp_path) == []
        await until(lambda: not programs(tmp_path), "the end of rclone")

    for name in ("rclone", "fusermount3"):
        tool(name, "rclone fuse3")
    with s3(pictures=BUCKET) as server:
        await story(server)


@pytest.mark.slow
async def test_a_bucket_of_another_implementation_of_s3_is_mounted(tmp_path: Path) -> None:
    pytest.importorskip("moto")
    for name in ("rclone", "fusermount3"):
        tool(name, "rclone fuse3")
    [port] = free_ports(1)
    server = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    options = {"type": "s3", "provider": "Other", "env_auth": "false", "region": "us-east-1"}
    options |= {"access_key_id": ACCESS_KEY, "secret_access_key": SECRET_KEY, "endpoint": f"http://127.0.0.1:{port}"}
    environment = {f"RCLONE_CONFIG_STORE_{name.upper()}": value for name, value in options.items()}

    def rclone(*arguments: str) -> int:
        command = ["rclone", "--config", "", "--retries", "1", *arguments]
        return subprocess.run(command, env={"PATH": os.environ["PATH"], **environment}, check=False).returncode

    try:
        await until(lambda: rclone("mkdir", "store:pictures") == 0, "the server")
        content = os.urandom(3 << 20)
        (tmp_path / "large").write_bytes(content)
        assert rclone("copyto", str(tmp_path / "large"), "store:pictures/folder/large") == 0
        with mounted(tmp_path / "stores", StoreMount("s3://pictures", "/s3", "pictures", options)) as at:
            assert (at / "folder" / "large").read_bytes() == content
    finally:
        server.kill()
        server.wait()


def test_what_this_host_lacks_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from reconciler.model.kinds.workload import Volume

    needs = {"stores": (Volume("s3://pictures", "/s3"), Volume("azurefs://account/share", "/share"))}
    share = "azurefs://account/share is not mounted at /share: this runtime mounts object stores, but no file shares."
    assert share in sentences(PODMAN, **needs)
    assert "s3://pictures" not in sentences(PODMAN, **needs)
    lacking = msgspec.structs.replace(PODMAN, lacks_for_stores="rclone or fuse3 is not installed")
    assert "s3://pictures is not mounted at /s3: rclone or fuse3 is not installed." in sentences(lacking, **needs)
    assert stores.missing_for_stores(0) == "Podman does not see the mounts of this daemon"
    monkeypatch.setattr(stores, "FUSE", tmp_path / "missing")
    assert "needs FUSE" in stores.missing_for_stores(os.getpid())
