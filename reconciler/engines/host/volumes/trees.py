"""Copies, compares and exchanges directory trees of workloads, whatever their programs put there."""

from __future__ import annotations

import ctypes
import os
import subprocess
from hashlib import blake2b
from pathlib import Path
from tempfile import TemporaryFile

from reconciler.engines.host.disk.atomic import sync_directory
from reconciler.engines.host.volumes.programs import check_program, run_program, start_program

_CHUNK = 1 << 20
_EXCHANGE = 2
_HERE = -100
_kernel = ctypes.CDLL(None, use_errno=True)


def copy_tree(source: Path, target: Path) -> None:
    """Copy a directory to ``target``, which does not exist: with owners, modes, times, links, holes and attributes.

    Blocks are shared where the file system can. The copy is on the disk when this returns. Raises OSError or
    EngineError.
    """
    run_program("cp", "-a", "--reflink=auto", "-T", "--", source, target)
    run_program("sync", "-f", "--", target)


def digest_tree(path: Path) -> str:
    """A checksum of a directory: names, kinds, owners, modes, times and content. Raises OSError or EngineError."""
    # --sparse reads no hole. The order of names makes the archive the same each time.
    options = ("--create", "--sort=name", "--numeric-owner", "--format=gnu", "--sparse", "--file=-", "--warning=none")
    checksum = blake2b(digest_size=32)
    with TemporaryFile() as errors:
        command = ("tar", *options, "--directory", path, ".")
        with start_program(command, stdout=subprocess.PIPE, stderr=errors.fileno()) as program:
            assert program.stdout is not None
            while chunk := program.stdout.read(_CHUNK):
                checksum.update(chunk)
        errors.seek(0)
        check_program("tar", program.returncode, errors.read())
    return checksum.hexdigest()


def tree_size(path: Path) -> int:
    """Bytes of the disk that a directory and its content take; files that vanish meanwhile do not matter."""
    with start_program(("du", "-sx", "--block-size=1", "--", path), stdout=subprocess.PIPE) as program:
        output, _ = program.communicate()
    size = output.split(maxsplit=1)
    return int(size[0]) if size else 0


def exchange_paths(one: Path, other: Path) -> None:
    """Exchange two files or directories at once. Raises OSError."""
    if _kernel.renameat2(_HERE, os.fsencode(one), _HERE, os.fsencode(other), _EXCHANGE):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), str(one))
    sync_directory(one.parent)
    sync_directory(other.parent)
