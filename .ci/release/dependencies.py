"""The dependencies of the package and of its build, at the versions and hashes in examples/ci/constraints.txt."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from importlib.metadata import Distribution, distributions
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import NormalizedName, canonicalize_name

from release.failures import run_command
from release.source import Source

CONSTRAINTS = Path("examples/ci/constraints.txt")
PIP = (sys.executable, "-m", "pip", "install", "--quiet", "--no-compile", "--disable-pip-version-check")


def install_dependencies(source: Source, folder: Path) -> Path:
    """Install all of them into ``folder``, without scripts; returns it. Raises ReleaseFailed."""
    pinned = ("--require-hashes", "--only-binary", ":all:", "--requirement", source.tree / CONSTRAINTS)
    run_command([*PIP, *pinned, "--target", folder], source.tree, source.environ)
    shutil.rmtree(folder / "bin", ignore_errors=True)
    return folder


def remove_unneeded(library: Path, name: str) -> None:
    """Remove what neither ``name`` nor a dependency of it requires, such as the build backend."""
    installed = {canonicalize_name(each.name): each for each in distributions(path=[str(library)])}
    needed, waiting = set[NormalizedName](), [canonicalize_name(name)]
    while waiting:
        required = waiting.pop()
        if required not in needed and required in installed:
            needed.add(required)
            waiting += _list_requirements(installed[required])
    for distribution in (each for name, each in installed.items() if name not in needed):
        for file in distribution.files or ():
            library.joinpath(file).unlink(missing_ok=True)
    for folder in sorted((path for path in library.rglob("*") if path.is_dir()), reverse=True):
        if not any(folder.iterdir()):
            folder.rmdir()


def _list_requirements(distribution: Distribution) -> Iterator[NormalizedName]:
    for text in distribution.requires or ():
        requirement = Requirement(text)
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            yield canonicalize_name(requirement.name)
