"""A name for everything that a decoded document depends on besides its bytes."""

from __future__ import annotations

import os
from functools import cache
from hashlib import blake2b
from pathlib import Path

import reconciler
from reconciler import __version__
from reconciler.documents.schema.loader import find_shipped_path
from reconciler.manifests.normalize import ManifestContext

_ENDINGS = (".py", ".json")


@cache
def _fingerprint_build() -> str:
    """Name this build of the decoder: another schema or rule may find other faults in the same bytes."""
    package = Path(reconciler.__file__).parent
    folders = [package / name for name in ("documents", "manifests", "model", "sops")]
    directories = (directory for folder in (*folders, find_shipped_path("schemas")) for directory in os.walk(folder))
    files = sorted(
        os.path.join(path, name) for path, _, names in directories for name in names if name.endswith(_ENDINGS)
    )
    seen = [(os.path.basename(path), stat.st_size, stat.st_mtime_ns) for path in files for stat in (os.stat(path),)]
    return blake2b(repr(seen).encode(), digest_size=8).hexdigest()


def decoder_fingerprint(dialect: ManifestContext) -> str:
    """Name everything that a decoded document depends on besides its bytes; an encrypted document is never cached."""
    text = f"{__version__} {_fingerprint_build()} {dialect.org} {dialect.scheme} {dialect.secrets} {dialect.images}"
    text += f" {dialect.unknown_fields} {dialect.channels}"
    return blake2b(text.encode() + dialect.secret_key, digest_size=16).hexdigest()
