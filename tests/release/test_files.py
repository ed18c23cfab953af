"""The files of a release: complete, equal for each build of a commit, summed and signed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from release.checksums import NAMESPACE
from tests.project.tree import ROOT
from tests.release.conftest import Release, build
from tests.support.git import git
from tests.support.programs import tool

pytestmark = pytest.mark.packaging

SIGNER = "releases@example.com"


def names(files: Path) -> list[str]:
    return sorted(path.name for path in files.iterdir())


def run(*command: object, cwd: Path, text: str = "") -> str:
    """What ``command`` prints."""
    words = [str(word) for word in command]
    return subprocess.run(words, cwd=cwd, input=text, capture_output=True, text=True, check=True).stdout


def test_a_release_has_packages_a_list_of_dependencies_and_sums(released: Release) -> None:
    deb = released.find("*.deb").name
    assert names(released.files) == sorted([
        "SHA256SUMS", "gitops-reconciler-0.1.0.cdx.json", deb,
        "gitops_reconciler-0.1.0-py3-none-any.whl", "gitops_reconciler-0.1.0.tar.gz",
    ])  # fmt: skip
    assert deb.startswith("gitops-reconciler_0.1.0_")
    checked = run("sha256sum", "--check", "SHA256SUMS", cwd=released.files)
    assert sorted(checked.splitlines()) == [f"{name}: OK" for name in names(released.files) if name != "SHA256SUMS"]


def test_another_build_of_the_commit_is_equal_byte_by_byte(released: Release, tmp_path: Path) -> None:
    tree, files = tmp_path / "elsewhere", tmp_path / "files"
    git(tmp_path, "clone", "--quiet", "--no-local", str(released.tree), str(tree))
    former = os.umask(0o077)
    try:
        done = build(tree, files, TZ="Asia/Tokyo", LC_ALL="C", PYTHONHASHSEED="7")
    finally:
        os.umask(former)
    assert done.returncode == 0, done.stderr
    assert names(files) == names(released.files)
    differing = [name for name in names(files) if (files / name).read_bytes() != (released.files / name).read_bytes()]
    assert differing == []


def test_no_file_of_a_release_names_a_place_of_its_build(released: Release, tmp_path: Path) -> None:
    run("dpkg-deb", "--raw-extract", released.find("*.deb"), tmp_path / "deb", cwd=tmp_path)
    own = [str(released.tree).encode(), str(released.files).encode(), sys.prefix.encode()]
    own.append(f"{tempfile.gettempdir()}/release-".encode())
    files = [path for path in (tmp_path / "deb").rglob("*") if path.is_file() and not path.is_symlink()]
    assert len(files) > 1000
    leaks = [str(path) for path in files if any(word in path.read_bytes() for word in own)]
    assert leaks == []


def test_the_list_of_dependencies_is_valid_cyclonedx(released: Release) -> None:
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    text = released.find("*.cdx.json").read_text()
    validator = JsonStrictValidator(SchemaVersion.V1_6)
    assert validator.validate_str(text) is None
    assert validator.validate_str(text.replace('"type": "library"', '"type": "book"')) is not None


def test_the_sdist_has_all_that_a_package_is_made_of(released: Release, tmp_path: Path) -> None:
    shutil.unpack_archive(released.find("*.tar.gz"), tmp_path, filter="data")
    (tree,) = tmp_path.iterdir()
    parts = (".ci/release", "systemd", "docs/generate", "reconciler", "examples/ci", "tests/release", "Makefile")
    assert [part for part in parts if not (tree / part).exists()] == []


@pytest.fixture
def clean_tree(checkout: Path, tmp_path: Path) -> Path:
    """A checkout that a test may change."""
    git(tmp_path, "clone", "--quiet", str(checkout), "tree")
    return tmp_path / "tree"


def test_what_is_not_committed_is_not_released(clean_tree: Path, tmp_path: Path) -> None:
    (clean_tree / "README.md").write_text("Changed")
    done = build(clean_tree, tmp_path / "files")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "error: 1 files differ from the commit, such as README.md: commit them first\n"


SIGN = "import sys; sys.path.append('.ci'); from pathlib import Path; from release.checksums import sign_sums as sign; "
SIGN += "print(*[path.name for path in sign(Path(sys.argv[1]), sys.argv[2])])"


def test_sums_are_signed_by_the_key_and_a_missing_one_is_reported(released: Release, tmp_path: Path) -> None:
    tool("ssh-keygen", "openssh-client")
    sums, key, sign = tmp_path / "SHA256SUMS", tmp_path / "key", (sys.executable, "-c", SIGN)
    shutil.copy(released.files / "SHA256SUMS", sums)
    run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key, cwd=tmp_path)
    assert run(*sign, sums, key, cwd=ROOT) == "SHA256SUMS.sig\n"
    (tmp_path / "signers").write_text(f"{SIGNER} {(tmp_path / 'key.pub').read_text()}")
    verify = ["ssh-keygen", "-Y", "verify", "-f", "signers", "-I", SIGNER, "-n", NAMESPACE, "-s", "SHA256SUMS.sig"]
    assert "Good" in run(*verify, cwd=tmp_path, text=sums.read_text())
    changed = subprocess.run(verify, cwd=tmp_path, input=f"{sums.read_text()}x", capture_output=True, text=True)
    assert changed.returncode != 0
    unsigned = subprocess.run([*sign, sums, ""], cwd=ROOT, capture_output=True, text=True, check=True)
    assert unsigned.stderr == "SHA256SUMS is not signed: name an ssh key with SIGNING_KEY=FILE\n"
    assert not (tmp_path / "SHA256SUMS.sig").exists()


@pytest.mark.slow
def test_the_debian_package_keeps_the_policy_of_debian(released: Release) -> None:
    lintian = [tool("lintian", "lintian"), "--fail-on", "error,warning", "--allow-root", str(released.find("*.deb"))]
    done = subprocess.run(lintian, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")
