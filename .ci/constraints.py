"""Writes examples/ci/constraints.txt: the package's dependencies and its build's, with versions and hashes.

Run it with the environment of the repository: ``.venv/bin/python .ci/constraints.py``. It asks the index that pip is
configured for, and the file names none. The hashes are those of wheels for Linux on x86-64 and arm64.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TARGET = ROOT / "examples" / "ci" / "constraints.txt"
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
MACHINES = ("x86_64", "aarch64")
GLIBCS = ("manylinux2014", *(f"manylinux_2_{minor}" for minor in (17, 24, 26, 27, 28, 31, 34)))
HEAD = """\
# The dependencies of gitops-reconciler and of its build, each at one version, with the hashes of its wheels.
# Made by `make constraints`; do not edit it.
#
#   pip install --require-hashes --only-binary :all: --requirement constraints.txt
#   pip install --no-deps --no-build-isolation REPOSITORY-AT-A-COMMIT
"""


def main() -> int:
    """Resolve for this Python, find the wheels of the others, and write the file."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wanted = [*project["project"]["dependencies"], *project["build-system"]["requires"]]
    hashes: dict[str, set[str]] = {}
    for name, digest in _resolved(wanted):
        hashes.setdefault(name, set()).add(digest)
    for python in PYTHONS:
        for machine in MACHINES:
            platforms = [word for glibc in GLIBCS for word in ("--platform", f"{glibc}_{machine}")]
            with tempfile.TemporaryDirectory() as folder:
                options = ["--no-deps", "--python-version", python, *platforms, "--target", folder]
                for name, digest in _resolved(sorted(hashes), options):
                    hashes[name].add(digest)
    lines = [" \\\n".join([name, *(f"    --hash=sha256:{digest}" for digest in sorted(hashes[name]))])
             for name in sorted(hashes)]  # fmt: skip
    TARGET.write_text("\n".join([HEAD, *lines, ""]))
    return 0


def _resolved(wanted: Sequence[str], options: Sequence[str] = ()) -> Iterator[tuple[str, str]]:
    """``name==version`` and SHA-256 of each wheel that pip would install."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--dry-run",
               "--ignore-installed", "--only-binary", ":all:", "--report", "-", *options, *wanted]  # fmt: skip
    report = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    for each in report["install"]:
        about, name = each["metadata"], re.sub(r"[-_.]+", "-", each["metadata"]["name"]).lower()
        yield f"{name}=={about['version']}", each["download_info"]["archive_info"]["hashes"]["sha256"]


if __name__ == "__main__":
    sys.exit(main())
