"""A file given to the wrong command: one sentence says what it is, and which command takes it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.documents.reader import parse_documents
from reconciler.documents.recognition import Form, describe_foreign_file, form_of
from reconciler.platform_cli.main import run_command_line
from tests.support.cases import CASES
from tests.support.command_sandbox import CommandResult, here

(TABLE,) = [each.value for each in parse_documents((CASES / "recognition/files.yaml").read_bytes()).documents]
FILES: list[dict[str, Any]] = TABLE["files"]


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


class Command(NamedTuple):
    """How a command names the file, and what it is called in ``taken`` of the files."""

    words: tuple[str, ...]
    takes: str


COMMANDS = (
    Command(("reconciler", "convert"), "convert"),
    Command(("reconciler", "import"), "import"),
    Command(("reconciler", "validate"), "check"),
    Command(("platform", "convert", "--file"), "convert"),
    Command(("platform", "apply", "--file"), "apply"),
    Command(("platform", "apply", "--dry-run", "--file"), "apply"),
    Command(("platform", "apply", "--k8s", "--file"), "convert"),
    Command(("platform", "diff", "--file"), "apply"),
    Command(("platform", "delete", "--file"), "apply"),
    Command(("platform", "delete", "--k8s", "--file"), "convert"),
    Command(("platform", "gvc", "patch", "shop", "--file"), "apply"),
    Command(("platform", "stack", "manifest", "--gvc", "shop", "--file"), "stack"),
    Command(("platform", "stack", "deploy", "--gvc", "shop", "--file"), "stack"),
    Command(("platform", "stack", "rm", "--gvc", "shop", "--file"), "stack"),
)
"""Every command that reads files of people's programs, before it asks a server."""
DIRECTORIES = tuple(each for each in COMMANDS if "stack" not in each.words and "patch" not in each.words)
"""Those that take a directory too."""


@pytest.fixture
def at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of a person with files, and no login."""
    monkeypatch.chdir(tmp_path)
    for name in ("COMPOSE_FILE", "COMPOSE_PROFILES", "PLATFORM_PROFILE", "PLATFORM_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"XDG_CONFIG_HOME": "config", "PLATFORM_ORG": "acme"}.items():
        monkeypatch.setenv(name, value)
    return tmp_path


def called(command: Command, name: str, capfd: pytest.CaptureFixture[str]) -> CommandResult:
    program, *words = command.words
    if program == "reconciler":
        return here(*words, name, cwd=Path.cwd())
    code = run_command_line([*words, name])
    shown = capfd.readouterr()
    return CommandResult(code, shown.out, shown.err)


def is_taken(command: Command, file: dict[str, Any]) -> bool:
    # `reconciler` has no command of its own for compose files.
    here_too = command.words == ("reconciler", "convert") and "stack" in file["taken"]
    return command.takes in file["taken"] or here_too


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file["name"]))
def test_each_command_names_the_one_that_takes_the_file(
    file: dict[str, Any], at_home: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    name = placed(at_home, file)
    for command in COMMANDS:
        result = called(command, name, capfd)
        if is_taken(command, file):
            assert "; convert" not in result.err, command
            assert result.out or result.err, command
            assert "Traceback" not in result.err, command
        else:
            assert result == (1, "", f"error: {file[command.words[0]]}\n"), command


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file["name"]))
def test_a_file_in_a_directory_is_named_too(
    file: dict[str, Any], at_home: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """As the file itself, but for the path; hidden folders are not read, nor hidden files by `validate`."""
    placed(at_home / "all", file)
    for command in DIRECTORIES:
        result = called(command, "all", capfd)
        assert "Traceback" not in result.err, command
        assert result.out or result.err, command
        if file["name"].startswith("."):
            assert result.code, command
        elif not is_taken(command, file):
            assert result.code, command
            sentence = str(file[command.words[0]]).partition("; ")[0]
            assert f"all/{sentence}; " in result.out + result.err, command


@pytest.mark.parametrize("text", ["", "# nothing yet\n", "---\n"], ids=["empty", "comment", "document"])
def test_a_file_with_nothing_in_it_is_no_silent_success(
    text: str, at_home: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (at_home / "a.yaml").write_text(text)
    for command in COMMANDS:
        result = called(command, "a.yaml", capfd)
        assert result.out or result.err, command
        assert result.code or command.takes == "check", command


def test_a_secret_in_a_file_is_not_shown(at_home: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (at_home / ".env").write_text("TOKEN=kanarienvogel\n")
    for command in COMMANDS:
        assert "kanarienvogel" not in str(called(command, ".env", capfd))


def test_standard_input_is_named_as_such() -> None:
    sentence = "standard input is a compose file; convert it with: reconciler convert -"
    assert describe_foreign_file("stdin", Form.COMPOSE) == sentence


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
        assert "\n" not in describe_foreign_file(name, form)
