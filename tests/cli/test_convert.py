"""`convert` and `import` as they are typed: where they read, where they write, when they refuse."""

from __future__ import annotations

import json
import subprocess
import sys
from io import BytesIO, TextIOWrapper
from pathlib import Path

import pytest
import yaml

from tests.support.command_sandbox import CommandResult, here

CONFIG = """apiVersion: v1
kind: ConfigMap
metadata: {name: NAME, namespace: shop}
data: {level: info}
"""
EXPORTED = """kind: workload
name: api
gvc: shop
version: 3
spec: {containers: [{name: main, image: api}]}
---
kind: gvc
name: shop
alias: abc
spec: {staticPlacement: {locationLinks: [/org/acme/location/here]}}
---
kind: secret
name: ../../db
type: opaque
data: {payload: made-up}
"""


def names(result: CommandResult) -> list[str]:
    assert result.code == 0, result
    return [document["name"] for document in yaml.safe_load_all(result.out)]


def tree(path: Path) -> set[str]:
    return {str(file.relative_to(path)) for file in path.rglob("*") if file.is_file()}


def test_files_and_directories_are_read(tmp_path: Path) -> None:
    (tmp_path / "one.yaml").write_text(CONFIG.replace("NAME", "one"))
    (tmp_path / "more/inner/.git").mkdir(parents=True)
    (tmp_path / "more/two.yml").write_text(CONFIG.replace("NAME", "two"))
    (tmp_path / "more/inner/three.json").write_text(
        json.dumps(yaml.safe_load(CONFIG.replace("NAME", "three")), indent="\t")
    )
    (tmp_path / "more/inner/.git/four.yaml").write_text(CONFIG.replace("NAME", "four"))
    (tmp_path / "more/README.md").write_text("no: yaml")
    assert names(here("convert", "one.yaml", "more", cwd=tmp_path)) == ["one", "three", "two"]


@pytest.mark.parametrize(("command", "text"), [("convert", CONFIG), ("import", "kind: group\nname: NAME\n")])
def test_standard_input_is_a_file_too(command: str, text: str, tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "reconciler.cli", command, "-"],
        input=text.replace("NAME", "piped"),
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=True,
        timeout=60,
    )
    assert yaml.safe_load(ran.stdout)["name"] == "piped"


def test_out_writes_a_file_for_each_resource(tmp_path: Path) -> None:
    (tmp_path / "export.yaml").write_text(EXPORTED)
    result = here("import", "export.yaml", "--out", "tree", cwd=tmp_path)
    assert (result.code, result.out) == (0, "")
    assert tree(tmp_path / "tree") == {"shop/gvc.yaml", "shop/workload/api.yaml", "secret/_._.._db.yaml"}
    assert (
        (tmp_path / "tree/shop/workload/api.yaml")
        .read_text()
        .startswith("kind: workload\nname: api\ngvc: shop\nspec:\n")
    )


def test_nothing_is_overwritten_unless_it_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "export.yaml").write_text(EXPORTED)
    (tmp_path / "tree/shop").mkdir(parents=True)
    (tmp_path / "tree/shop/gvc.yaml").write_text("mine")
    result = here("import", "export.yaml", "--out", "tree", cwd=tmp_path)
    assert result.code == 1
    assert result.err.endswith("error: tree/shop/gvc.yaml would be overwritten; --force does so\n")
    assert tree(tmp_path / "tree") == {"shop/gvc.yaml"}
    assert here("import", "export.yaml", "--out", "tree", "--force", cwd=tmp_path).code == 0
    assert (tmp_path / "tree/shop/gvc.yaml").read_text().startswith("kind: gvc\n")


def test_two_resources_never_share_a_file(tmp_path: Path) -> None:
    (tmp_path / "export.yaml").write_text("kind: group\nname: a b\n---\nkind: group\nname: a_b\n")
    result = here("import", "export.yaml", "--out", "tree", cwd=tmp_path)
    assert result.code == 1
    assert result.err.endswith("error: two resources would be written to one file; omit --out\n")
    assert "the group a b would be refused for `name`" in result.err
    assert not (tmp_path / "tree").exists()


def test_faults_leave_nothing_written(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(CONFIG.replace("NAME", "one") + "---\nkind: ConfigMap\n")
    result = here("convert", "a.yaml", "--out", "tree", cwd=tmp_path)
    assert result.code == 1
    assert "a.yaml:6:1: error: " in result.err
    assert not (tmp_path / "tree").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["convert", "nowhere.yaml"], "nowhere.yaml cannot be read: No such file or directory"),
        (["convert", "empty"], "empty has nothing to read: no file below it ends in .yaml, .yml, .json"),
        (["convert", "a.yaml", "--gvc", "No Name"], "--gvc No Name: a name is lower-case letters, digits and hyphens"),
        (["import", "a.yaml", "--scheme", "Cloud://"], "--scheme Cloud://: lower-case letters and digits"),
        (["import", "a.yaml", "--out", "taken/inner"], "taken/inner cannot be written: Not a directory"),
    ],
)
def test_a_wrong_use_ends_with_a_message_of_one_line(words: list[str], message: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "taken").write_text("a file")
    (tmp_path / "a.yaml").write_text("kind: group\nname: a\n")
    result = here(*words, cwd=tmp_path)
    assert (result.code, result.out) == (2, "")
    assert f"error: {message}" in result.err


def test_a_file_without_a_document_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("# nothing\n")
    for command in ("convert", "import"):
        assert here(command, "a.yaml", cwd=tmp_path) == CommandResult(2, "", "error: a.yaml: there is no document\n")


def test_values_of_secrets_appear_in_the_manifests_only(tmp_path: Path) -> None:
    secret = "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: {password: kanarienvogel}\n"
    (tmp_path / "a.yaml").write_text(f"{secret}novel: kanarienvogel\n")
    result = here("convert", "a.yaml", cwd=tmp_path)
    assert "password: kanarienvogel" in result.out
    assert "`novel`" in result.err
    assert "kanarienvogel" not in result.err


DEPLOY = (
    "service: shop\nimage: shop:1\naccessories: {db: {image: 'mysql:8', files: ['PLACE:/etc/my.cnf'], port: 3306}}\n"
)
PLACES = ["../outside/my.cnf", "config/link", "folder/my.cnf", "config/../../outside/my.cnf"]


@pytest.fixture
def deployment(tmp_path: Path) -> Path:
    """The directory of a project of Kamal, and beside it a file that is nobody's business."""
    folder = tmp_path / "project"
    (folder / "config").mkdir(parents=True)
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/my.cnf").write_text("kanarienvogel")
    (folder / "config/link").symlink_to(tmp_path / "outside/my.cnf")
    (folder / "folder").symlink_to(tmp_path / "outside")
    (folder / "config/deploy.yml").write_text(DEPLOY.replace("PLACE", "config/my.cnf"))
    (folder / "config/my.cnf").write_text("[mysqld]\n")
    (folder / "config/deploy.staging.yml").write_text("proxy: {host: staging.example.com}\n")
    return folder


@pytest.mark.parametrize("place", PLACES)
def test_a_file_outside_of_the_project_is_read_only_on_demand(deployment: Path, place: str) -> None:
    (deployment / "config/deploy.yml").write_text(DEPLOY.replace("PLACE", place))
    refused = here("convert", "config/deploy.yml", cwd=deployment)
    assert refused.code == 1
    assert "kanarienvogel" not in refused.out + refused.err
    assert "--allow-outside" in refused.err
    read = here("convert", "--allow-outside", "config/deploy.yml", cwd=deployment)
    assert read.code == 0, read
    assert "kanarienvogel" in read.out


def test_paths_of_kamal_begin_at_the_project_wherever_the_command_runs(deployment: Path) -> None:
    for cwd, name in ((deployment, "config/deploy.yml"), (deployment.parent, "project/config/deploy.yml")):
        result = here("convert", name, cwd=cwd)
        assert result.code == 0, result
        assert "[mysqld]" in result.out


@pytest.mark.parametrize("names", [["config/deploy.yml"], ["config"]])
def test_a_destination_is_read_beside_its_file(deployment: Path, names: list[str]) -> None:
    (deployment / "config/my.cnf").rename(deployment / "my.cnf")
    result = here("convert", *names, "--destination", "staging", cwd=deployment)
    assert result.code == 0, result
    assert "staging.example.com" in result.out
    assert "this goes to the GVC shop-staging" in result.err


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (
            ["config/deploy.yml", "--destination", "other"],
            1,
            "config/deploy.other.yml, the file of the destination, cannot be read: no such file or directory",
        ),
        (["config/deploy.yml", "--destination", "../other"], 2, "--destination ../other: a name is"),
        (["config/deploy.staging.yml", "--destination", "staging"], 2, "no FILE is one"),
        (["config"], 1, "config/deploy.staging.yml is a destination of Kamal"),
        (["-", "--destination", "staging"], 2, "standard input has no destination beside it"),
    ],
)
def test_a_destination_that_is_none_is_an_error(
    deployment: Path, words: list[str], code: int, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", TextIOWrapper(BytesIO(DEPLOY.encode())))
    result = here("convert", *words, cwd=deployment)
    assert (result.code, result.out) == (code, "")
    assert message in result.err


def test_drop_ins_beside_a_unit_are_read_and_links_are_not(tmp_path: Path) -> None:
    (tmp_path / "units/web.container.d").mkdir(parents=True)
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/secret.conf").write_text("[Container]\nEnvironment=TOKEN=kanarienvogel\n")
    (tmp_path / "units/web.container").write_text("[Container]\nImage=web:1\n")
    (tmp_path / "units/web.container.d/10.conf").write_text("[Container]\nImage=web:2\n")
    (tmp_path / "units/web.container.d/20.conf").symlink_to(tmp_path / "outside/secret.conf")
    (tmp_path / "units/container.d").symlink_to(tmp_path / "outside")
    for name in ("units/web.container", "units"):
        result = here("convert", name, cwd=tmp_path)
        assert result.code == 0, result
        assert "image: docker.io/library/web:2" in result.out
        assert "kanarienvogel" not in result.out + result.err


@pytest.mark.parametrize("env_file", ["../outside/web.env", "./link", "/OUTSIDE/web.env"])
def test_an_env_file_outside_of_a_unit_is_read_only_on_demand(tmp_path: Path, env_file: str) -> None:
    (tmp_path / "units").mkdir()
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/web.env").write_text("TOKEN=kanarienvogel\n")
    (tmp_path / "units/link").symlink_to(tmp_path / "outside/web.env")
    env_file = env_file.replace("/OUTSIDE", str(tmp_path / "outside"))
    (tmp_path / "units/web.container").write_text(f"[Container]\nImage=web:1\nEnvironmentFile={env_file}\n")
    refused = here("convert", "units/web.container", cwd=tmp_path)
    assert "kanarienvogel" not in refused.out + refused.err
    assert "--allow-outside" in refused.err
    read = here("convert", "--allow-outside", "units/web.container", cwd=tmp_path)
    assert read.code == 0, read
    assert "kanarienvogel" in read.out
