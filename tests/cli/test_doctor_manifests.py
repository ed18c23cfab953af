"""`reconciler doctor` checks what the manifests need of this host, and nothing that they do not."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.cli.test_doctor import examined, reported
from tests.support.command_sandbox import GVC, CommandSandbox

IMAGE = """kind: workload
name: NAME
gvc: shop
spec: {type: standard, containers: [{name: main, image: IMAGE}]}
"""


def image(name: str, text: str) -> str:
    """A workload whose only container is the image ``text``."""
    return IMAGE.replace("NAME", name).replace("IMAGE", json.dumps(text))


def program(name: str) -> str:
    """A workload with a command."""
    return image(name, "nginx:1.27").replace("}]}", ", command: sleep, args: ['9']}]}")


@pytest.fixture
def sandbox(tmp_path: Path) -> CommandSandbox:
    return CommandSandbox(tmp_path, {"shop/gvc.yaml": GVC})


def bind(sandbox: CommandSandbox, more: dict[str, Any] | None = None, **location: Any) -> None:
    """Let both locations be this machine."""
    settings = {
        "org": "acme",
        "state": "state",
        "sources": [{"name": "main", "url": "./manifests", "branch": "main"}],
        "locations": {name: {"engine": "host", **location} for name in ("here", "there")},
    }
    sandbox.settings.write_text(json.dumps(settings | (more or {})))


def without_podman(sandbox: CommandSandbox) -> str:
    """A directory with what doctor runs, and no Podman, for PATH."""
    folder = sandbox.path / "few"
    folder.mkdir(exist_ok=True)
    for name in ("git", "sh"):
        program = shutil.which(name)
        assert program is not None
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to(program)
    return str(folder)


def test_containers_that_are_images_only_need_podman(sandbox: CommandSandbox) -> None:
    path = without_podman(sandbox)
    sandbox.commit({"shop/web.yaml": image("web", "nginx:1.27"), "shop/api.yaml": program("api")})
    bind(sandbox)
    problem = reported(sandbox, "manifests", "problem", PATH=path)
    assert (
        "workload/shop/web at here has containers without a command, which need Podman -> apt-get install " in problem
    )
    assert "podman" in problem
    bind(sandbox, runtime="process")
    assert "need Podman -> set `runtime: auto` for here" in reported(sandbox, "manifests", "problem")
    sandbox.commit({"shop/web.yaml": None})
    assert reported(sandbox, "manifests", "problem", PATH=path) == "", "no manifest needs it"


def test_the_registries_of_images_are_named_with_their_credentials(sandbox: CommandSandbox) -> None:
    logins = sandbox.path / "auth.json"
    logins.write_text(json.dumps({"auths": {"registry.example.com": {"auth": "YTpi"}}}))
    logins.chmod(0o600)
    bind(sandbox, {"images": {"credentials": str(logins)}}, runtime="podman")
    private, own = image("api", "registry.example.com/api:1"), image("own", "localhost/own:1")
    sandbox.commit({"shop/web.yaml": image("web", "nginx:1.27"), "shop/api.yaml": private, "shop/own.yaml": own})
    assert reported(sandbox, "manifests", "ok").splitlines() == [
        "images of workload/shop/web come from docker.io, without credentials: public images alone -> ",
        f"images of workload/shop/api come from registry.example.com, with {logins} -> ",
    ]
    assert "YTpi" not in str(examined(sandbox))
    sandbox.commit({"shop/own.yaml": image("own", "//image/own:1")})
    assert "an image of workload/shop/own cannot be pulled: the image `/org/acme/image/own:1`" in reported(
        sandbox, "manifests", "problem"
    )


def test_domains_need_an_ingress_and_that_needs_haproxy(
    sandbox: CommandSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reconciler.engines.host.dataplane.haproxy.program.SEARCH", "")
    path = without_podman(sandbox)
    bind(sandbox, runtime="process")
    assert reported(sandbox, "manifests", "problem", PATH=path) == ""
    spec = "{workloadLink: //gvc/shop/workload/api, ports: [{number: 443, protocol: http2}]}"
    api = program("api").replace("args:", "ports: [{number: 8080}], args:")
    sandbox.commit({"domain.yaml": f"kind: domain\nname: www.example.com\nspec: {spec}\n", "api.yaml": api})
    assert "domain/www.example.com is served nowhere -> set" in reported(sandbox, "manifests", "warning", PATH=path)
    here = {"engine": "host", "runtime": "process", "ingress": {}}
    bind(sandbox, {"locations": {"here": here, "there": {"engine": "recorded"}}})
    problem = reported(sandbox, "manifests", "problem", PATH=path)
    assert "domain/www.example.com cannot be served at here: The ingress is not served" in problem
    assert "-> apt-get install haproxy" in problem


def test_a_file_system_of_volumes_needs_its_programs(sandbox: CommandSandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reconciler.doctor.permissions.os.geteuid", lambda: 0)
    monkeypatch.setattr("reconciler.engines.host.volumes.programs._PATH", "")
    bind(sandbox, runtime="process")
    spec = "{initialCapacity: 10, performanceClass: general-purpose-ssd, fileSystemType: xfs}"
    sandbox.commit({"shop/data.yaml": f"kind: volumeset\nname: data\ngvc: shop\nspec: {spec}\n"})
    warning = reported(sandbox, "manifests", "warning")
    assert "new volumes of volumeset/shop/data (xfs) are directories" in warning
    assert "without mkfs.xfs -> apt-get install xfsprogs" in warning
    bind(sandbox, {"host": {"volumes": "image-ext4"}}, runtime="process")
    problem = reported(sandbox, "manifests", "problem")
    assert "can be created without mke2fs, e2fsck, resize2fs -> apt-get install e2fsprogs" in problem
    bind(sandbox, {"host": {"volumes": "directory"}}, runtime="process")
    assert reported(sandbox, "manifests", "problem") == ""


def test_what_only_some_workloads_need_is_not_missed_without_them(sandbox: CommandSandbox) -> None:
    bind(sandbox, runtime="podman")
    sandbox.commit({"shop/api.yaml": program("api")})
    assert "can read secrets in variables" not in reported(sandbox, "host engine", "warning")
    assert "object stores" not in reported(sandbox, "host engine", "warning", PATH=without_podman(sandbox))
    with_secret = image("web", "nginx:1").replace("image:", "env: [{name: A, value: platform://secret/db}], image:")
    secret = "kind: secret\nname: db\ntype: opaque\ndata: {payload: x}\n"
    sandbox.commit({"shop/web.yaml": with_secret, "secret.yaml": secret})
    shown = reported(sandbox, "host engine", "warning")
    assert ("can read secrets in variables" in shown) == ("web" in reported(sandbox, "manifests", "ok"))


def test_faulty_manifests_leave_the_rest_to_be_checked(sandbox: CommandSandbox) -> None:
    bind(sandbox, runtime="process")
    sandbox.commit({"shop/web.yaml": image("web", "nginx:1.27"), "shop/bad.yaml": "kind: worklod\n"})
    assert "workload/shop/web at here" in reported(sandbox, "manifests", "problem")
