"""The control plane as one program; `python -m tests.kubernetes.cluster.build` builds each version, once."""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

SOURCE = Path(__file__).parent
NEWEST = "1.37"
"""What a cluster runs unless a test asks for another version."""
MODULE_FILES = {"1.37": "go.mod", "1.34": "go-1.34.mod"}
"""Minor version → the file that pins its modules."""
FLAGS = ("-trimpath", "-buildvcs=false")
STAMP = "-X k8s.io/component-base/version.{name}={value}"
"""Sets what the components report as their version."""
SPARED = 3
"""Programs of one version that stay: checkouts may differ."""

NO_GO = "the command go is missing: install Go 1.26 or newer"


class BuildFailed(Exception):
    """Go is missing, a module cannot be downloaded, or it does not compile."""


class Program(NamedTuple):
    """A control plane that can be started."""

    path: Path
    version: str
    """Such as ``v1.37.2``."""


def find_go() -> str | None:
    """Path of the command ``go``; None where it is not installed."""
    return shutil.which("go", path=f"{os.environ.get('PATH', '')}:/usr/local/go/bin:/usr/lib/go/bin")


def build_program(minor: str = NEWEST) -> Program:
    """The program of ``minor``; builds it unless the cache has it. Raises BuildFailed with what Go printed."""
    version, path = _locate_program(minor)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_name("lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            _compile_program(SOURCE / MODULE_FILES[minor], version, path)
            for former in sorted(path.parent.glob("kubernetes-*"), key=_read_age)[SPARED:]:
                former.unlink()
    return Program(path, version)


def is_built(minor: str = NEWEST) -> bool:
    """Whether the cache has the program of ``minor``."""
    return _locate_program(minor)[1].exists()


def _locate_program(minor: str) -> tuple[str, Path]:
    """Version and path of the program of ``minor``."""
    modules = SOURCE / MODULE_FILES[minor]
    found = re.search(r"^\s+k8s\.io/kubernetes (v\S+)$", modules.read_text(), re.MULTILINE)
    assert found, f"{modules} requires no k8s.io/kubernetes"
    return found[1], _find_cache() / found[1] / f"kubernetes-{_hash_source(modules)}"


def _find_cache() -> Path:
    """Outside the tree: a clean checkout builds nothing again."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "reconciler-tests" / "kubernetes"


def _hash_source(modules: Path) -> str:
    """Of all that the program is built from."""
    files = (modules, modules.with_suffix(".sum"), SOURCE / "main.go")
    content = b"".join(path.read_bytes() for path in files) + " ".join([*FLAGS, STAMP]).encode()
    return hashlib.sha256(content).hexdigest()[:16]


def _read_age(path: Path) -> float:
    return -path.stat().st_mtime


def _compile_program(modules: Path, version: str, path: Path) -> None:
    go = find_go()
    if go is None:
        raise BuildFailed(NO_GO)
    major, minor, _ = version.removeprefix("v").split(".")
    variables = {"gitVersion": version, "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
    stamps = [STAMP.format(name=name, value=value) for name, value in variables.items()]
    unfinished = path.with_name(f"unfinished-{path.name}")
    command = [go, "build", f"-modfile={modules}", *FLAGS, f"-ldflags={' '.join(['-s', '-w', *stamps])}"]
    command += ["-o", str(unfinished), "."]
    environment = {**os.environ, "CGO_ENABLED": "0"}
    done = subprocess.run(command, cwd=SOURCE, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BuildFailed(f"the control plane {version} cannot be built: {done.stderr.strip()[-4000:]}")
    unfinished.rename(path)


def main() -> int:
    """Build what the cache lacks; 0, too, where Go is missing and this is not CI."""
    missing = [minor for minor in MODULE_FILES if not is_built(minor)]
    if missing and find_go() is None and not os.environ.get("CI"):
        print(f"{NO_GO}; without it the tests on a cluster are left out", file=sys.stderr)
        return 0
    for minor in missing:
        print(
            f"Building Kubernetes {_locate_program(minor)[0]} from Go modules, which takes some minutes, once",
            flush=True,
        )
        try:
            build_program(minor)
        except BuildFailed as failure:
            print(failure, file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
