"""The files under examples/kubernetes run the daemon in a cluster: with its rights, its settings, and an image."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from docs.generate.kubernetes import ACCESS, render_access_file
from reconciler.engines.kubernetes.access import render_access
from reconciler.settings import load_settings
from tests.project.tree import ROOT

EXAMPLE = ROOT / "examples" / "kubernetes"
RECIPE = EXAMPLE / "Containerfile"


def read(name: str) -> list[dict[str, Any]]:
    """The objects in a file of the example."""
    return list(yaml.safe_load_all((EXAMPLE / name).read_text()))


def pod() -> dict[str, Any]:
    """The specification of the daemon's pod."""
    spec: dict[str, Any] = read("daemon.yaml")[1]["spec"]["template"]["spec"]
    return spec


def instructions() -> list[tuple[str, list[str]]]:
    """Each instruction of the recipe with its words."""
    text = re.sub(r"^#.*\n", "", RECIPE.read_text(), flags=re.M).replace("\\\n", " ")
    lines = [line.split() for line in text.splitlines() if line.strip()]
    return [(line[0], line[1:]) for line in lines]


def words_of(name: str) -> list[list[str]]:
    return [words for instruction, words in instructions() if instruction == name]


def test_the_access_file_has_the_rights_that_the_engine_uses() -> None:
    assert read("access.yaml") == render_access("reconciler", "reconciler")
    assert ACCESS.read_text() == render_access_file(), "run: python -m docs.generate"


def test_the_settings_bind_the_cluster_of_the_pod() -> None:
    settings = load_settings(EXAMPLE / "settings.yaml")
    assert {bound.engine for bound in settings.locations.values()} == {"kubernetes"}
    assert [bound.cluster.kubeconfig for bound in settings.locations.values()] == [None]
    (container,) = pod()["containers"]
    (records,) = [mount for mount in container["volumeMounts"] if mount["name"] == "records"]
    # The root of a claim belongs to the group of the pod; the daemon makes a folder of its own, which is private.
    assert Path(settings.state).parent == Path(records["mountPath"])


def test_files_that_the_settings_name_are_mounted() -> None:
    (container,) = pod()["containers"]
    mounts = [mount["mountPath"] for mount in container["volumeMounts"]]
    named = re.findall(r"\w+File: (/[^\s,}]+)", (EXAMPLE / "settings.yaml").read_text())
    assert named
    assert [path for path in named if not any(path.startswith(f"{mount}/") for mount in mounts)] == []
    assert container["env"][1] == {"name": "RECONCILER_SETTINGS", "value": "/etc/reconciler/settings.yaml"}


def test_the_pod_is_not_root_and_writes_to_its_volumes_only() -> None:
    (container,) = pod()["containers"]
    assert pod()["securityContext"]["runAsNonRoot"] is True
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    user, group = words_of("USER")[-1][0].split(":")
    assert (pod()["securityContext"]["runAsUser"], pod()["securityContext"]["fsGroup"]) == (int(user), int(group))


def test_the_image_is_made_from_files_that_exist() -> None:
    copied = [words[:-1] for words in words_of("COPY") if not words[0].startswith("--from")]
    assert [path for words in copied for path in words if not (ROOT / path).exists()] == []
    bases = {words[0] for words in words_of("FROM")}
    assert len(bases) == 1
    assert re.fullmatch(r"docker\.io/library/python:3\.11-\S+", bases.pop())
    assert words_of("ENTRYPOINT") == [['["reconciler"]']]


@pytest.mark.packaging
def test_the_copied_files_suffice_for_the_package(tmp_path: Path) -> None:
    for words in words_of("COPY"):
        *sources, target = words
        for source in (name for name in sources if not name.startswith(("--from", "/"))):
            path = tmp_path / (target if target not in ("./", ".") else source)
            path.parent.mkdir(parents=True, exist_ok=True)
            shutil.copytree(ROOT / source, path) if (ROOT / source).is_dir() else shutil.copy(ROOT / source, path)
    command = [
        sys.executable,
        "-m",
        "build",
        "--wheel",
        "--no-isolation",
        "--outdir",
        str(tmp_path / "dist"),
        str(tmp_path),
    ]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stderr
    assert len(list((tmp_path / "dist").glob("*.whl"))) == 1
