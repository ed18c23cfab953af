"""A name for everything that a decoded document depends on besides its bytes."""

from __future__ import annotations

from functools import cache
from hashlib import blake2b
from pathlib import Path

import reconciler
from reconciler import __version__
from reconciler.documents.schema.loader import shipped
from reconciler.manifests.normalize import ManifestContext


@cache
def _build() -> str:
    """Name this build of the decoder: another schema or rule may find other faults in the same bytes."""
    package = Path(reconciler.__file__).parent
    folders = [package / name for name in ("documents", "manifests", "model", "sops")]
    found = (path for folder in (*folders, shipped("schemas")) for path in folder.rglob("*"))
    files = sorted(path for path in found if path.suffix in (".py", ".json"))
    seen = [(path.name, stat.st_size, stat.st_mtime_ns) for path in files for stat in (path.stat(),)]
    return blake2b(repr(seen).encode(), digest_size=8).hexdigest()


def decoder_fingerprint(dialect: ManifestContext) -> str:
    """Name everything that a decoded document depends on besides its bytes; an encrypted document is never cached."""
    text = f"{__version__} {_build()} {dialect.org} {dialect.scheme} {dialect.secrets}"
    return blake2b(text.encode() + dialect.secret_key, digest_size=16).hexdigest()
