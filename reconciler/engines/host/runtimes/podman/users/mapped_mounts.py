"""Idmapped mounts: files have the owners on the disk that containers in a user namespace see, whatever its ids are.

The kernel translates them for one mount, so nothing is walked or changed on the disk. A mount is needed only while a
container starts, which has a copy of it from then on.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from msgspec.structs import replace

from reconciler.engines.host.disk.ownership import IdRange
from reconciler.engines.host.runtimes.protocol import Mount
from reconciler.listing import list_paths
from reconciler.private_files import make_directory

_OPEN_TREE, _MOVE_MOUNT, _MOUNT_SETATTR = 428, 429, 442
"""Numbers of system calls, the same for all processors that this runs on."""
_HERE, _CLONE, _NOFOLLOW, _EMPTY_PATH, _FROM_EMPTY_PATH = -100, 1, 0x100, 0x1000, 4
_NOSUID_NODEV, _IDMAP, _PRIVATE = 2 | 4, 0x100000, 1 << 18
_DETACH_NOFOLLOW = 2 | 8
_SECONDS = 10.0
_TRIED = IdRange(1 << 30)
_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
_MOUNTS = "mount -t proc p /proc && mount -t sysfs s /sys"
_TRIAL = ("unshare", "--mount", "--net", "--pid", "--fork", "sh", "-c", _MOUNTS)
_MOVER = f"""
import ctypes, os, sys
target = os.fsencode(sys.argv[2])
sys.exit(ctypes.CDLL(None).syscall({_MOVE_MOUNT}, int(sys.argv[1]), b"", {_HERE}, target, {_FROM_EMPTY_PATH}) != 0)
"""
"""Puts a mount that is nowhere yet to its place, in the mount namespace that it runs in."""
_kernel = ctypes.CDLL(None, use_errno=True)


@contextmanager
def map_mounts(mounts: tuple[Mount, ...], folder: Path, pid: int, podman: int = 0) -> Iterator[tuple[Mount, ...]]:
    """``mounts``, those to write to through mounts below ``folder`` for the user namespace of the process ``pid``.

    These mounts end with the block. ``podman`` is a process of the mount namespace of Podman, 0 if it is that of this
    process. Raises OSError. Blocks.
    """
    namespace = os.open(f"/proc/{pid}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
    try:
        make_directory(folder)
        top = Path(tempfile.mkdtemp(dir=folder))
    except OSError:
        os.close(namespace)
        raise
    try:
        yield tuple(
            mount
            if mount.read_only
            else replace(mount, source=_mount_mapped_tree(mount.source, top / str(number), namespace, podman))
            for number, mount in enumerate(mounts)
        )
    finally:
        os.close(namespace)
        unmount_mapped(folder, podman, top.name)


def unmount_mapped(folder: Path, podman: int, name: str = "*") -> None:
    """End the mounts below ``folder``, those of all starts or of one; containers that run keep theirs. Blocks.

    Nothing but mount points and empty directories is ever removed there: below may be volumes. ``podman`` is as in
    ``map_mounts``.
    """
    tops = list(list_paths(folder, name))
    for path in [*list_paths(folder, f"{name}/*"), *tops]:
        _kernel.umount2(os.fsencode(path), _DETACH_NOFOLLOW)
        if podman and path not in tops:
            with suppress(OSError, subprocess.SubprocessError):
                _run_there(podman, [_find_tool("umount"), "--lazy", "--no-canonicalize", str(path)])
        with suppress(OSError):
            path.rmdir() if path.is_dir() else path.unlink()


def lacks_for_namespaces(*, mounts: bool) -> str:
    """Why no container can be in a user namespace with ids of this host; "" if one can. Blocks.

    ``mounts``: try what every container mounts there, too. A host that is a container itself may refuse that. A daemon
    that is confined, unlike Podman, cannot know.
    """
    try:
        with _create_trial_namespace() as namespace:
            if not mounts:
                return ""
            command = [_find_tool("nsenter"), f"--user=/proc/self/fd/{namespace}", *_TRIAL]
            done = subprocess.run(
                command, capture_output=True, check=False, timeout=_SECONDS, text=True, pass_fds=[namespace]
            )
    except (OSError, subprocess.SubprocessError) as error:
        return f"this host makes none ({error})"
    if done.returncode:
        why, *_ = done.stderr.splitlines() or [""]
        return f"this host lets none mount /proc and /sys ({why})"
    return ""


def lacks_for_mapped_mounts(folder: Path, podman: int = 0) -> str:
    """Why what is in ``folder`` cannot be mounted for a user namespace; "" if it can. Nothing is mounted. Blocks.

    ``podman`` is as in ``map_mounts``.
    """
    try:
        with _create_trial_namespace() as namespace:
            os.close(_clone_mount_tree(folder, namespace))
    except (OSError, subprocess.SubprocessError) as error:
        return f"the file system of {folder} has no idmapped mounts ({error})"
    try:
        own = f"{folder.stat().st_dev}:{folder.stat().st_ino}\n"
        same = not podman or _run_there(podman, [_find_tool("stat"), "--format=%d:%i", str(folder)]) == own
    except (OSError, subprocess.SubprocessError):
        same = False
    return "" if same else "this daemon cannot mount them where Podman sees them"


def _run_there(podman: int, command: Sequence[str], descriptor: int | None = None) -> str:
    """The output of a program in the mount namespace of the process ``podman``. Raises OSError, SubprocessError."""
    whole = [_find_tool("nsenter"), f"--mount=/proc/{podman}/ns/mnt", *command]
    inherited = [descriptor] if descriptor is not None else []
    done = subprocess.run(
        whole,
        capture_output=True,
        check=True,
        timeout=_SECONDS,
        text=True,
        stdin=subprocess.DEVNULL,
        pass_fds=inherited,
    )
    return done.stdout


def _mount_mapped_tree(source: Path, target: Path, namespace: int, podman: int) -> Path:
    if source.is_dir():
        target.mkdir(mode=0o700)
    else:
        target.touch(mode=0o600)
    tree = _clone_mount_tree(source, namespace)
    try:
        if podman:
            # With -I and -S, Python runs nothing of its environment or its site there.
            _run_there(podman, [sys.executable, "-I", "-S", "-c", _MOVER, str(tree), str(target)], tree)
        else:
            _check_syscall_result(
                _kernel.syscall(_MOVE_MOUNT, tree, b"", _HERE, os.fsencode(target), _FROM_EMPTY_PATH), target
            )
    except subprocess.SubprocessError as error:
        raise OSError(0, f"it cannot be mounted where Podman sees it: {error}", str(source)) from None
    finally:
        os.close(tree)
    return target


def _clone_mount_tree(source: Path, namespace: int) -> int:
    """A mount of ``source`` that is nowhere yet, with the ids of a user namespace. Raises OSError."""
    path = os.fsencode(source)
    tree = int(
        _check_syscall_result(_kernel.syscall(_OPEN_TREE, _HERE, path, _CLONE | _NOFOLLOW | os.O_CLOEXEC), source)
    )
    try:
        attributes = struct.pack("=4Q", _NOSUID_NODEV | _IDMAP, 0, _PRIVATE, namespace)
        # ctypes passes a plain number as 32 bits, and the kernel expects a size of 64.
        done = _kernel.syscall(_MOUNT_SETATTR, tree, b"", _EMPTY_PATH, attributes, ctypes.c_size_t(len(attributes)))
        _check_syscall_result(done, source)
    except OSError:
        os.close(tree)
        raise
    return tree


def _find_tool(name: str) -> str:
    return shutil.which(name, path=_PATH) or name


def _check_syscall_result(result: int, path: Path) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), str(path))
    return result


@contextmanager
def _create_trial_namespace() -> Iterator[int]:
    """A user namespace for a trial, which ends with the block. Raises OSError and SubprocessError."""
    command = [_find_tool("unshare"), "--user", "cat"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as program:
        assert program.stdin is not None
        assert program.stdout is not None
        try:
            program.stdin.write(b"ready\n")
            program.stdin.flush()
            # cat answers only after unshare has made the namespace.
            if program.stdout.readline() != b"ready\n":
                raise subprocess.SubprocessError(program.communicate(timeout=_SECONDS)[1].decode().strip())
            for name in ("uid_map", "gid_map"):
                Path(f"/proc/{program.pid}/{name}").write_text(f"0 {_TRIED.first} {_TRIED.count}\n", encoding="ascii")
            namespace = os.open(f"/proc/{program.pid}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
        finally:
            # The descriptor preserves the namespace without a process.
            program.kill()
        try:
            yield namespace
        finally:
            os.close(namespace)
