"""Builds every file of a release from the commit that is checked out."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from release.checksums import sign_sums, write_sums
from release.debian_package import build_debian_package
from release.dependencies import install_dependencies
from release.failures import ReleaseFailed
from release.python_packages import build_python_packages
from release.source import ROOT, export_commit


def main() -> int:
    """Build, and name each file; 1 with a sentence where something is missing."""
    options = _parse_options()
    try:
        files = build_release(options.out.resolve(), options.key)
    except ReleaseFailed as failure:
        sys.stderr.write(f"error: {failure}\n")
        return 1
    for path in files:
        sys.stdout.write(f"{path}\n")
    return 0


def build_release(out: Path, key: str) -> list[Path]:
    """Write the files of a release into ``out`` and return them; raises ReleaseFailed."""
    with tempfile.TemporaryDirectory(prefix="release-") as folder:
        source = export_commit(ROOT, Path(folder, "source"))
        out.mkdir(parents=True, exist_ok=True)
        dependencies = install_dependencies(source, Path(folder, "dependencies"))
        packages = build_python_packages(source, dependencies, out)
        deb = build_debian_package(source, dependencies, packages.wheel, Path(folder, "root"))
        files = [*packages, deb]
        sums = write_sums(files, out)
        return [*files, sums, *sign_sums(sums, key)]


def _parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m release", description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="the directory of the files; default: dist")
    parser.add_argument("--key", default="", help="the file of the ssh key that signs SHA256SUMS")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
