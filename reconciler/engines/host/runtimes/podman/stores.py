"""Object stores of containers: rclone mounts each on this host, and the container sees that mount, read-only.

A mount is below the directory of its container, and the kernel lists it: nothing else records it. rclone runs on beside
containers, whatever becomes of the daemon, and ends once nothing uses its mount.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from reconciler.engines.host.runtimes import procfs
from reconciler.engines.host.runtimes.protocol import Mount, StoreMount
from reconciler.errors import EngineError
from reconciler.foreign_words import strip_variation
from reconciler.reasons import Reason

FUSE = Path("/dev/fuse")
_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
_REMOTE = "store"
_TRY_SECONDS, _MOUNT_SECONDS, _UNMOUNT_SECONDS = 15.0, 30.0, 10.0
_LIMITS = ("--contimeout", "5s", "--timeout", "10s", "--retries", "1", "--low-level-retries", "2")
_OPTIONS = ("--read-only", "--allow-other", "--umask", "022", "--file-perms", "0444", "--dir-perms", "0555")
_TIME = re.compile(r"^[0-9/]+ [0-9:]+ (?:[A-Z]+ *: )?", re.MULTILINE)
# The kernel writes blanks in paths as octal numbers.
_ESCAPED = re.compile(r"\\([0-7]{3})")
# Shorter values occur in ordinary words, which messages need.
_SHORTEST_SECRET = 4
_OPEN_OPTIONS = frozenset({"type", "provider", "env_auth", "bucket_policy_only", "account", "endpoint", "region"})


def missing_for_stores(service: int) -> str:
    """Why this daemon cannot mount object stores for the Podman with the process ``service``; "" if it can."""
    if os.geteuid() != 0 or not os.access(FUSE, os.R_OK | os.W_OK):
        return "this needs FUSE and a daemon that runs as root"
    if _find_tool("rclone") is None or _find_tool("fusermount3") is None:
        return "rclone or fuse3 is not installed"
    return "" if sees_mounts(service) else "Podman does not see the mounts of this daemon"


def sees_mounts(service: int) -> bool:
    """Whether the Podman with the process ``service`` sees what this daemon mounts."""
    try:
        return os.stat("/proc/self/ns/mnt").st_ino == os.stat(f"/proc/{service}/ns/mnt").st_ino
    except OSError:
        return False


def mount_stores(stores: tuple[StoreMount, ...], folder: Path) -> tuple[Mount, ...]:
    """Mount ``stores`` below ``folder``; those that are mounted and answer stay. Raises EngineError. Blocks."""
    mounts = []
    for index, store in enumerate(stores):
        at = folder / str(index)
        if not _is_mount_alive(at):
            unmount_below(at)
            _mount_store(store, at)
        mounts.append(Mount(at, store.path))
    return tuple(mounts)


def has_dead_mounts(folder: Path) -> bool:
    """Whether the rclone of a mount below ``folder`` has ended: a container that sees it cannot read there. Blocks."""
    return folder.exists() and not all(map(_is_mount_alive, _mount_points(folder)))


def unmount_below(folder: Path) -> None:
    """Unmount everything at and below ``folder``; containers that run keep what they see. Blocks."""
    for path in sorted(_mount_points(folder), reverse=True):
        subprocess.run(
            [_find_tool("umount") or "umount", "--lazy", str(path)],
            capture_output=True,
            check=False,
            stdin=subprocess.DEVNULL,
            timeout=_UNMOUNT_SECONDS,
        )


def _mount_store(store: StoreMount, at: Path) -> None:
    at.mkdir(mode=0o700, parents=True, exist_ok=True)
    remote = f"{_REMOTE}:{store.place}"
    with _open_rclone_environment(store) as environment:
        # A mount of a bucket that does not exist would be an empty directory.
        _run_rclone(store, ["lsf", "--max-depth", "1", *_LIMITS, remote], environment, _TRY_SECONDS, patient=True)
        mount = ["mount", remote, str(at), *_OPTIONS, "--daemon", "--daemon-wait", f"{_TRY_SECONDS:.0f}s"]
        _run_rclone(store, mount, environment, _MOUNT_SECONDS)


def _run_rclone(
    store: StoreMount, arguments: list[str], environment: dict[str, str], seconds: float, *, patient: bool = False
) -> None:
    """Run rclone; if ``patient``, no answer in time is no error: a bucket can be large. Raises EngineError."""
    # Without a configuration of this host: the variables have everything.
    command = [_find_tool("rclone") or "rclone", "--config", "", *arguments]
    with tempfile.TemporaryFile() as errors:
        # The mount runs on with these streams, so none is a pipe.
        streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": errors}
        try:
            code = subprocess.run(command, **streams, env=environment, check=False, timeout=seconds).returncode  # type: ignore[call-overload]
        except subprocess.TimeoutExpired:
            if patient:
                return
            raise _make_mount_error(store, f"no answer within {seconds:.0f} s") from None
        except OSError as error:
            raise _make_mount_error(store, f"rclone cannot be run: {error}") from None
        errors.seek(0)
        text = errors.read(1 << 16).decode(errors="replace")
    if code:
        raise _make_mount_error(store, _last_message(text) or f"rclone ended with {code}")


def _last_message(log: str) -> str:
    """The last message in a log, on one line; it can have several there, and only the first begins with a time."""
    *_, last = _TIME.split(log)
    return " ".join(last.split())


def _make_mount_error(store: StoreMount, words: str) -> EngineError:
    for value in _list_secret_values(store):
        words = words.replace(value, "***")
    message = f"{store.uri} cannot be mounted: {strip_variation(words)[:300]}"
    return EngineError(message, reason=Reason.STORE_MOUNT_FAILED)


def _list_secret_values(store: StoreMount) -> Iterator[str]:
    """The values that no message shows; names of places and forms are none of them."""
    texts = [value for name, value in store.options.items() if name not in _OPEN_OPTIONS]
    for text in (*texts, store.principal):
        with suppress(msgspec.DecodeError):
            texts += msgspec.json.decode(text, type=dict[str, str]).values()
    yield from (text for text in texts if len(text) >= _SHORTEST_SECRET)


@contextmanager
def _open_rclone_environment(store: StoreMount) -> Iterator[dict[str, str]]:
    """The variables of rclone, with the keys: only root can read them, and they are in no file."""
    options = dict(store.options)
    with os.fdopen(os.memfd_create("principal"), "w", encoding="utf-8") as principal:
        if store.principal:
            principal.write(store.principal)
            principal.flush()
            # This file is in memory and ends with this process; rclone forks, and so it inherits no descriptor.
            options["service_principal_file"] = f"/proc/{os.getpid()}/fd/{principal.fileno()}"
        prefix = f"RCLONE_CONFIG_{_REMOTE.upper()}_"
        yield {"PATH": _PATH, **{f"{prefix}{name.upper()}": value for name, value in options.items()}}


def _is_mount_alive(at: Path) -> bool:
    """Whether ``at`` is a mount whose rclone runs."""
    if at not in _mount_points(at):
        return False
    try:
        # If the rclone of a mount has ended, the kernel refuses this.
        os.statvfs(at)
    except OSError:
        return False
    return True


def _mount_points(folder: Path) -> list[Path]:
    """What is mounted at ``folder`` and below it."""
    mount_points = []
    for line in procfs.read_kernel_file("/proc/self/mountinfo").decode(errors="surrogateescape").splitlines():
        path = Path(_ESCAPED.sub(lambda match: chr(int(match[1], 8)), line.split(" ")[4]))
        if path == folder or folder in path.parents:
            mount_points.append(path)
    return mount_points


def _find_tool(name: str) -> str | None:
    return shutil.which(name, path=_PATH)
