"""SHA256SUMS, and its signature by an ssh key."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterable
from pathlib import Path

from release.failures import ReleaseFailed, run_command

SUMS = "SHA256SUMS"
NAMESPACE = "file"
"""What the signature is for: the one that people use for files."""


def write_sums(files: Iterable[Path], out: Path) -> Path:
    """Write the sums of ``files``, in the form of sha256sum; returns the file."""
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in sorted(files)]
    sums = out / SUMS
    sums.write_text("".join(lines))
    return sums


def sign_sums(sums: Path, key: str) -> list[Path]:
    """Sign ``sums`` with the ssh key in the file ``key``; returns the signature, or nothing without a key."""
    signature = sums.with_name(f"{sums.name}.sig")
    signature.unlink(missing_ok=True)
    if not key:
        sys.stderr.write(f"{sums.name} is not signed: name an ssh key with SIGNING_KEY=FILE\n")
        return []
    if not Path(key).is_file():
        raise ReleaseFailed(f"there is no key {key}: name the file of an ssh key with SIGNING_KEY=FILE")
    run_command(["ssh-keygen", "-Y", "sign", "-q", "-n", NAMESPACE, "-f", key, sums], sums.parent, os.environ)
    return [signature]
