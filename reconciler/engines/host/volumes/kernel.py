"""System calls that volumes need and Python lacks: mounts, loop devices, and ioctls of file systems."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import re
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from reconciler.listing import list_paths

_kernel = ctypes.CDLL(None, use_errno=True)

_NOSUID_NODEV = 2 | 4
_NOFOLLOW = 8
_LOOP_FREE, _LOOP_CONFIGURE, _LOOP_CAPACITY = 0x4C82, 0x4C0A, 0x4C07
_AUTOCLEAR = 4
_CLONE, _THAW, _TRIM = 0x40049409, 0xC0045878, 0xC0185879
_EXT4_RESIZE, _XFS_GEOMETRY, _XFS_GROW = 0x40086610, 0x80705864, 0x4010586E
_LOOPS = Path("/sys/block")
_DEVICES = Path("/sys/dev/block")
_ESCAPED = re.compile(r"\\([0-7]{3})")
_ATTEMPTS = 100
_SECTOR = 512
_STOPPED = frozenset({"shutdown", "emergency_ro", "ro"})
"""Options of a file system that stopped itself; volumes are mounted writable."""
SYS_RESOURCE = 24
"""The capability to grow a mounted ext4."""


def has_capability(number: int) -> bool:
    """Whether this process has a capability."""
    (effective,) = re.findall(r"^CapEff:\s*(\w+)$", Path("/proc/self/status").read_text(), re.M)
    return bool(int(effective, 16) >> number & 1)


def mount_ids(pid: str) -> dict[str, str]:
    """Mount points to the ids of their top mounts, as the process ``pid`` has them. Raises OSError."""
    return {point: line[0] for point, line in _list_mounts(pid)}


def mounted_device(path: Path) -> int:
    """The number of the device that is mounted at ``path``; 0 if none is. Raises OSError."""
    try:
        device, above = os.lstat(path).st_dev, os.lstat(path.parent).st_dev
    except FileNotFoundError:
        return 0
    except OSError:
        # A file system that failed answers nothing, but the kernel has it mounted.
        numbers = [line[2].split(":") for point, line in _list_mounts("self") if point == _resolve_mount_path(path)]
        return os.makedev(*map(int, numbers[-1])) if numbers else 0
    return device if device != above else 0


def device_size(path: Path) -> int:
    """The bytes of the device that is mounted at ``path``; 0 if it has none."""
    device = mounted_device(path)
    try:
        return int((_DEVICES / f"{os.major(device)}:{os.minor(device)}" / "size").read_text()) * _SECTOR
    except FileNotFoundError:
        return 0


def has_failed(path: Path) -> bool:
    """Whether the file system that is mounted at ``path`` has stopped itself after an error of its device."""
    try:
        os.lstat(path)
    except OSError as error:
        return error.errno == errno.EIO
    options = [
        line[5].rsplit(" ", 1)[-1].split(",")
        for point, line in _list_mounts("self")
        if point == _resolve_mount_path(path)
    ]
    return bool(options) and not _STOPPED.isdisjoint(options[-1])


def _resolve_mount_path(path: Path) -> str:
    """``path`` as the kernel lists it; the top directory of a file system that failed answers nothing."""
    return f"{os.path.realpath(path.parent)}/{path.name}"


def _list_mounts(pid: str) -> Iterator[tuple[str, list[str]]]:
    """Mount points and the words of their lines, the top mount of each last."""
    for line in Path(f"/proc/{pid}/mountinfo").read_text().splitlines():
        words = line.split(" ", 5)
        yield _unescape_path(words[4]), words


def find_user(device: int) -> str:
    """Who keeps the file system of ``device`` mounted: the number and the name of a process; "" where none is seen.

    It has a file or directory of it open, or else a mount namespace of its own with a copy of the mount.
    """
    number, own = f" {os.major(device)}:{os.minor(device)} ", os.stat("/proc/self/ns/mnt").st_ino
    # A copy in another namespace mostly goes with the mount, so who uses files is named first.
    copy = ""
    for process in sorted(list_paths(Path("/proc"), "[0-9]*"), key=lambda path: int(path.name)):
        with suppress(OSError):  # it ends meanwhile, or is not for this user
            name = f"process {process.name} ({(process / 'comm').read_text().strip()})"
            if any(_is_on(path, device) for path in (process / "cwd", process / "root", *list_paths(process, "fd/*"))):
                return f"{name} uses its files"
            if not copy and os.stat(process / "ns/mnt").st_ino != own:
                copy = name if number in (process / "mountinfo").read_text() else ""
    return f"{copy} has it in a mount namespace of its own" if copy else ""


def _is_on(path: Path, device: int) -> bool:
    try:
        return os.stat(path).st_dev == device
    except OSError as error:
        # A file system that stopped does not say which one it is; a second one that stopped is unlikely.
        return error.errno == errno.EIO


def mount_device(device: str, path: Path, file_system: str, options: str) -> None:
    """Mount ``device`` at ``path``. Raises OSError."""
    words = (device.encode(), os.fsencode(path), file_system.encode())
    _check_call_result(_kernel.mount(*words, ctypes.c_ulong(_NOSUID_NODEV), options.encode()), path)


def unmount_path(path: Path) -> None:
    """Unmount what is mounted at ``path``. Raises OSError."""
    _check_call_result(_kernel.umount2(os.fsencode(path), _NOFOLLOW), path)


@contextmanager
def loop_device(image: Path) -> Iterator[str]:
    """A loop device for ``image``: the one it has, or a new one. It ends with its last user. Raises OSError."""
    with _open_descriptor(image, os.O_RDWR) as file:
        for _ in range(_ATTEMPTS):
            loop = find_loop(image)
            name = loop or _free_loop()
            with _open_descriptor(Path(name), os.O_RDWR) as device:
                # Meanwhile another process may have bound it, or it may have ended.
                if (loop is not None and find_loop(image) == loop) or (
                    loop is None and _configure_loop_device(device, file, image)
                ):
                    yield name
                    return
    raise OSError(errno.EBUSY, "no loop device is free", str(image))


def _free_loop() -> str:
    with _open_descriptor(Path("/dev/loop-control"), os.O_RDWR) as control:
        return f"/dev/loop{fcntl.ioctl(control, _LOOP_FREE)}"


def _configure_loop_device(device: int, file: int, image: Path) -> bool:
    """Bind ``file`` to a loop device; return False if it is in use."""
    name = os.fsencode(image)[-63:]
    information = struct.pack("=5Q4I64s64s32s2Q", 0, 0, 0, 0, 0, 0, 0, 0, _AUTOCLEAR, name, b"", b"", 0, 0)
    try:
        fcntl.ioctl(device, _LOOP_CONFIGURE, struct.pack("=2I", file, 0) + information + bytes(64))
    except OSError as error:
        if error.errno != errno.EBUSY:
            raise
        return False
    return True


def find_loop(image: Path) -> str | None:
    """The loop device of ``image``; None if it has none: then nothing in any mount namespace has it mounted."""
    path = os.path.realpath(image)
    names = (name for name in os.listdir(_LOOPS) if name.startswith("loop"))
    return next((f"/dev/{name}" for name in names if _backing_file(_LOOPS / name) == path), None)


def is_loop_of(device: int, image: Path) -> bool:
    """Whether the device with the number ``device`` is a loop device of ``image``."""
    number = f"{os.major(device)}:{os.minor(device)}"
    return _backing_file(_DEVICES / number) == os.path.realpath(image)


def update_loop_size(device: int) -> None:
    """Give a loop device the size of its file. Raises OSError."""
    with _open_descriptor(Path(f"/dev/loop{os.minor(device)}"), os.O_RDWR) as opened:
        fcntl.ioctl(opened, _LOOP_CAPACITY, 0)


def _backing_file(device: Path) -> str:
    with suppress(OSError):
        return (device / "loop" / "backing_file").read_text().rstrip("\n")
    return ""


def grow_ext4(path: Path, blocks: int) -> None:
    """Grow the ext4 that is mounted at ``path`` to ``blocks`` of its blocks. Raises OSError."""
    with _open_descriptor(path, os.O_RDONLY) as folder:
        fcntl.ioctl(folder, _EXT4_RESIZE, struct.pack("=Q", blocks))


def grow_xfs(path: Path, size: int) -> None:
    """Grow the XFS that is mounted at ``path`` to ``size`` bytes. Raises OSError."""
    with _open_descriptor(path, os.O_RDONLY) as folder:
        # struct xfs_fsop_geom_v1 begins with the block size; the share of inodes and the blocks follow.
        block, share, blocks = struct.unpack_from("=I24xIQ", fcntl.ioctl(folder, _XFS_GEOMETRY, bytes(112)))
        if size // block > blocks:
            fcntl.ioctl(folder, _XFS_GROW, struct.pack("=QI4x", size // block, share))


def thaw_file_system(path: Path) -> None:
    """Let programs write again to the file system that is mounted at ``path``, if it is frozen."""
    with suppress(OSError), _open_descriptor(path, os.O_RDONLY) as folder:
        thaw_opened(folder)


def thaw_opened(folder: int) -> None:
    """Let programs write again to the file system of the open directory ``folder``, if it is frozen."""
    with suppress(OSError):
        fcntl.ioctl(folder, _THAW, 0)


def trim_file_system(path: Path) -> None:
    """Free the blocks of the image below ``path`` that its file system does not use. Raises OSError."""
    with _open_descriptor(path, os.O_RDONLY) as folder:
        fcntl.ioctl(folder, _TRIM, struct.pack("=3Q", 0, (1 << 64) - 1, 0))


def clone_file(source: int, target: int) -> bool:
    """Make ``target`` share all blocks of ``source``; return False if the file system cannot. Raises OSError."""
    try:
        fcntl.ioctl(target, _CLONE, source)
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.ENOTTY, errno.EXDEV, errno.EINVAL):
            raise
        return False
    return True


def _unescape_path(text: str) -> str:
    return os.fsdecode(_ESCAPED.sub(lambda match: chr(int(match[1], 8)), text).encode("latin-1", "surrogateescape"))


@contextmanager
def _open_descriptor(path: Path, flags: int) -> Iterator[int]:
    descriptor = os.open(path, flags | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _check_call_result(failed: int, path: Path) -> None:
    if failed:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), str(path))
