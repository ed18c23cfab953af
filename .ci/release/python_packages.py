"""The wheel and the sdist, and the list of dependencies that the wheel has, as a file of its own."""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path
from typing import NamedTuple

from release.failures import run_command
from release.source import Source

NAME = "gitops-reconciler"


class PythonPackages(NamedTuple):
    """The files for package indexes, and the list of dependencies (CycloneDX 1.6, JSON)."""

    wheel: Path
    sdist: Path
    bill: Path


def build_python_packages(source: Source, dependencies: Path, out: Path) -> PythonPackages:
    """Build the sdist, and the wheel from the sdist, with the build backend among ``dependencies``.

    Raises ReleaseFailed.
    """
    environ = {**source.environ, "PYTHONPATH": str(dependencies)}
    run_command([sys.executable, "-m", "build", "--no-isolation", "--outdir", out, source.tree], source.tree, environ)
    stem = f"{NAME.replace('-', '_')}-{source.version}"
    wheel, bill = out / f"{stem}-py3-none-any.whl", out / f"{NAME}-{source.version}.cdx.json"
    with zipfile.ZipFile(wheel) as archive:
        bill.write_bytes(archive.read(f"{stem}.dist-info/sboms/{NAME}.cdx.json"))
    return PythonPackages(wheel, out / f"{stem}.tar.gz", bill)
