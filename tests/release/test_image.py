"""The image recipe makes an image: on a Debian of this machine, where it names an image of a registry."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.project.test_cluster_example import RECIPE, words_of
from tests.support.programs import only_root, tool
from tests.systemd.debian_root import find_root

pytestmark = [pytest.mark.packaging, only_root("only root builds images with the network of the machine")]

BASE = "localhost/reconciler-test-python"
IMAGE = "localhost/reconciler-test-recipe"
RUN = ("run", "--rm", "--pull=never", "--network=host", "--ulimit=nofile=1024:4096", "--ulimit=nproc=1000:1000")
"""Limits that need no right to raise them."""
LINKS = {"./usr/local/bin/python": "/usr/bin/python3"}
"""What the image that the recipe names has, and Debian has not."""


class Storage:
    """Images of a test, below ``folder``."""

    def __init__(self, folder: Path) -> None:
        places = [f"--{name}={folder / name}" for name in ("root", "runroot", "tmpdir")]
        own = ["--runtime=runc", "--cgroup-manager=cgroupfs", "--events-backend=none"]
        self._podman = [tool("podman", "podman"), *places, *own]

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """How a command of Podman ends."""
        return subprocess.run([*self._podman, *words], capture_output=True, text=True, check=False)

    def import_root(self, root: Path, links: Path) -> None:
        """Make BASE of the files of a system, and of ``links``, without the packages that it was made of."""
        pack = ["tar", "--create", "--exclude=./var/cache/apt/*.bin", "--exclude=./var/cache/apt/archives/*.deb"]
        path = "ENV PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
        take = [*self._podman, "import", "--change", path, "-", BASE]
        with subprocess.Popen([*pack, "-C", root, ".", "-C", links, *sorted(LINKS)], stdout=subprocess.PIPE) as packed:
            done = subprocess.run(take, stdin=packed.stdout, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def storage() -> Iterator[Storage]:
    """A storage that has BASE: Debian 12 with a program called python, as the image that the recipe names."""
    with TemporaryDirectory(prefix="reconciler-image-") as path:
        images = Storage(Path(path))
        for name, target in LINKS.items():
            (Path(path, "links") / name).parent.mkdir(parents=True)
            (Path(path, "links") / name).symlink_to(target)
        try:
            images.import_root(find_root(), Path(path, "links"))
            tried = images.run(*RUN, BASE, "python", "--version")
            if tried.returncode and not os.environ.get("CI"):
                pytest.skip(f"Podman runs no container here: {tried.stderr.strip()[-200:]}")
            assert tried.stdout.startswith("Python 3.11"), tried.stderr
            yield images
        finally:
            images.run("rmi", "--all", "--force")
            # Podman mounts the directory of its layers on itself.
            subprocess.run(["umount", "--lazy", Path(path, "root/overlay")], capture_output=True, check=False)


def test_the_recipe_makes_an_image_whose_commands_answer(storage: Storage, checkout: Path) -> None:
    named = words_of("FROM")[0][0]
    # The authorities of this machine: a registry of packages may be behind a proxy of it.
    build = ["build", "--network=host", "--volume=/etc/ssl/certs:/etc/ssl/certs:ro", "--pull=never"]
    build += [f"--build-context={named}=container-image://{BASE}", f"--tag={IMAGE}", f"--file={RECIPE}"]
    done = storage.run(*build, str(checkout))
    assert done.returncode == 0, done.stderr + done.stdout[-2000:]
    answer = storage.run(*RUN, IMAGE, "--version")
    assert answer.stdout == "reconciler, version 0.1.0\n", answer.stderr
    config = storage.run(
        "image", "inspect", "--format", "{{.Config.User}} {{.Config.Entrypoint}} {{.Config.Cmd}}", IMAGE
    )
    assert re.fullmatch(r"10001:10001 \[reconciler\] \[run --settings \S+\]\n", config.stdout)
