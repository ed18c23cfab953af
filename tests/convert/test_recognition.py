"""A file given to the wrong command: one sentence says what it is, and which command takes it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.convert.recognition import Form, foreign, form_of
from reconciler.documents.reader import read
from reconciler.platform_cli.main import run
from tests.support.cases import CASES
from tests.support.desk import here

(TABLE,) = [each.value for each in read((CASES / "recognition/files.yaml").read_bytes()).documents]
FILES: list[dict[str, str]] = TABLE["files"]


def placed(folder: Path, file: dict[str, str]) -> str:
    path = folder / file["name"]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(file["text"])
    return file["name"]


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file["name"]))
def test_a_file_is_recognised(file: dict[str, str]) -> None:
    assert form_of(file["name"], file["text"].encode()) == file["form"]


def test_every_form_has_a_file() -> None:
    assert {file["form"] for file in FILES} == {form.value for form in Form if form}


@pytest.mark.parametrize("command", ["convert", "validate"])
@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file["name"]))
def test_a_command_names_the_one_that_takes_the_file(file: dict[str, str], command: str, tmp_path: Path) -> None:
    result = here(command, placed(tmp_path, file), cwd=tmp_path)
    if file[command]:
        assert result == (1, "", f"error: {file[command]}\n")
    else:
        assert "; convert" not in result.err
        assert (result.code, result.out != "") in ((0, True), (1, True))


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file["name"]))
def test_stack_names_the_command_that_takes_the_file(
    file: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    code = run(["stack", "manifest", "--gvc", "shop", "--file", placed(tmp_path, file)])
    shown = capfd.readouterr()
    if file["stack"]:
        assert (code, shown.out, shown.err) == (1, "", f"error: {file['stack']}\n")
    else:
        assert code == 0
        assert "kind: workload" in shown.out


def test_standard_input_is_named_as_such() -> None:
    sentence = "standard input is a compose file; convert it with: platform stack manifest --file -"
    assert foreign("stdin", Form.COMPOSE) == sentence


def test_a_kustomization_among_resources_is_only_left_out(tmp_path: Path) -> None:
    (tmp_path / "kustomization.yaml").write_text(
        "apiVersion: kustomize.config.k8s.io/v1\nkind: Kustomization\nresources: [a.yaml]\n"
    )
    (tmp_path / "a.yaml").write_text(next(file["text"] for file in FILES if file["name"] == "deployment.yaml"))
    result = here("convert", ".", cwd=tmp_path)
    assert result.code == 0
    assert "kind: workload" in result.out
    assert "Kustomization has no meaning here" in result.err


def test_a_file_of_both_sorts_is_checked_document_by_document(tmp_path: Path) -> None:
    text = "kind: identity\nname: web\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"
    (tmp_path / "a.yaml").write_text(text)
    for command in ("convert", "validate"):
        result = here(command, "a.yaml", cwd=tmp_path)
        assert result.code == 1
        assert "a.yaml:" in result.out + result.err


def test_a_directory_of_quadlets_is_converted_together(tmp_path: Path) -> None:
    (tmp_path / "units").mkdir()
    (tmp_path / "units/web.container").write_text("[Container]\nImage=web:1\nVolume=pages.volume:/pages\n")
    (tmp_path / "units/pages.volume").write_text("[Volume]\nVolumeName=own\n")
    result = here("convert", "units", "--gvc", "shop", "--out", "out", cwd=tmp_path)
    assert result.code == 0, result
    written = {str(path.relative_to(tmp_path / "out")) for path in (tmp_path / "out").rglob("*.yaml")}
    assert written == {"shop/workload/web.yaml", "shop/volumeset/own.yaml"}


@given(st.binary(max_size=300), st.sampled_from([str(file["name"]) for file in FILES]))
def test_no_content_makes_recognition_fail(raw: bytes, name: str) -> None:
    form: Any = form_of(name, raw)
    if form:
        assert "\n" not in foreign(name, form)
