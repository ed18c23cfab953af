"""A compose project of somebody else reads only what is below its directory, and is small whatever it repeats."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from reconciler.errors import OutsideFileError, UnreadableFileError
from reconciler.input_files import ProjectFiles
from reconciler.platform_cli.main import run_command_line
from tests.support.pace import in_time

SECRET = "kanarienvogel"
NAMED = {
    "secrets": "services: {a: {image: a, secrets: [s]}}\nsecrets: {s: {file: PLACE}}",
    "configs": "services: {a: {image: a, configs: [c]}}\nconfigs: {c: {file: PLACE}}",
    "env_file": "services: {a: {image: a, env_file: PLACE}}",
    "env_file that may be missing": "services: {a: {image: a, env_file: [{path: PLACE, required: false}]}}",
    "volumes": "services: {a: {image: a, volumes: ['PLACE:/x/y']}}",
    "extends": "services: {a: {image: a, extends: {file: PLACE, service: b}}}",
    "include": "include: [PLACE]\nservices: {a: {image: a}}",
    "project_directory": "include: [{path: ./inner.yaml, project_directory: FOLDER}]\nservices: {a: {image: a}}",
    "env_file of an include": "include: [{path: ./inner.yaml, env_file: PLACE}]\nservices: {a: {image: a}}",
}
"""Field → a project that names a file with it."""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of a project, and beside it a file that is nobody's business."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "inner.yaml").write_text("services: {b: {image: '${TOKEN:-none}'}}")
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text(f"TOKEN={SECRET}\n")
    (outside / ".env").write_text(f"TOKEN={SECRET}\n")
    (folder / "link").symlink_to(outside / "file")
    (folder / "folder").symlink_to(outside)
    monkeypatch.chdir(folder)
    for name in ("COMPOSE_FILE", "COMPOSE_PROFILES", "PLATFORM_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return folder


def manifest(*words: str) -> int:
    return run_command_line(["stack", "manifest", "--gvc", "shop", *words])


PLACES = ["../outside/file", "OUTSIDE/file", "./link", "./folder/file", "./inner.yaml/../../outside/file"]


# A path of the machine is never a file of the project where it is a volume.
OUTSIDE = [(field, place) for field in NAMED for place in PLACES if field != "volumes" or place.startswith(".")]


@pytest.mark.parametrize(("field", "target"), OUTSIDE)
def test_no_field_reads_a_file_outside_of_the_project(
    project: Path, capfd: pytest.CaptureFixture[str], field: str, target: str
) -> None:
    target = target.replace("OUTSIDE", str(project.parent / "outside"))
    folder = os.path.dirname(target) if "outside" in target else "./folder"
    (project / "compose.yaml").write_text(NAMED[field].replace("PLACE", target).replace("FOLDER", folder))
    assert manifest() != 0
    shown = capfd.readouterr()
    assert SECRET not in shown.out + shown.err
    assert "--allow-outside" in shown.err
    named = f"{folder}/.env" if field == "project_directory" else target
    assert os.path.normpath(named) in shown.err


@pytest.mark.parametrize("field", ["secrets", "env_file", "volumes"])
def test_the_option_reads_files_outside(project: Path, capfd: pytest.CaptureFixture[str], field: str) -> None:
    (project / "compose.yaml").write_text(NAMED[field].replace("PLACE", "../outside/file"))
    assert manifest("--allow-outside") == 0
    assert SECRET in capfd.readouterr().out


def test_links_within_the_project_are_followed(project: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (project / "real").mkdir()
    (project / "real" / "file").write_text("TOKEN=mine\n")
    (project / "inside").symlink_to("real")
    (project / "compose.yaml").write_text(NAMED["secrets"].replace("PLACE", "./inside/file"))
    assert manifest() == 0
    assert "TOKEN=mine" in capfd.readouterr().out


@pytest.mark.parametrize("name", [".env", "compose.override.yaml", "compose.yaml"])
def test_files_that_are_found_by_their_names_are_no_links_out_of_it(
    project: Path, capfd: pytest.CaptureFixture[str], name: str
) -> None:
    (project / "compose.yaml").write_text("services: {a: {image: '${TOKEN:-none}'}}")
    (project / name).unlink(missing_ok=True)
    (project / name).symlink_to(project.parent / "outside" / "file")
    assert manifest() == 2
    shown = capfd.readouterr()
    assert SECRET not in shown.out + shown.err
    assert name in shown.err
    assert "--allow-outside" in shown.err


def test_files_that_the_caller_names_may_be_anywhere(project: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (project.parent / "outside" / "compose.yaml").write_text("services: {a: {image: '${TOKEN}', env_file: ./file}}")
    words = ["--file", "../outside/compose.yaml", "--env-file", "../outside/file"]
    assert manifest(*words) == 0
    assert f"image: docker.io/library/{SECRET}" in capfd.readouterr().out


def test_a_link_that_is_exchanged_meanwhile_leads_nowhere_else(tmp_path: Path) -> None:
    root, outside = tmp_path / "project", tmp_path / "outside"
    for folder, text in ((root / "mine", "mine"), (outside, SECRET)):
        folder.mkdir(parents=True)
        (folder / "file").write_text(text)
    (root / "other").symlink_to(outside)
    files = ProjectFiles(str(root), allow_outside=False)
    done = threading.Event()

    def exchange() -> None:
        while not done.is_set():
            for one, other in (("mine", "kept"), ("other", "mine"), ("mine", "other"), ("kept", "mine")):
                (root / one).rename(root / other)

    exchanging = threading.Thread(target=exchange)
    exchanging.start()
    try:
        contents = {_content(files, str(root / "mine" / "file")) for _ in range(2_000)}
    finally:
        done.set()
        exchanging.join()
    assert b"mine" in contents
    assert SECRET.encode() not in contents


def _content(files: ProjectFiles, path: str) -> bytes:
    try:
        return files.read(path)
    except UnreadableFileError as error:
        return type(error).__name__.encode()


@pytest.mark.parametrize("name", ["pipe", "folder"])
def test_what_is_no_regular_file_is_refused(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    with pytest.raises(UnreadableFileError, match=r"no regular file|directory"):
        ProjectFiles(str(tmp_path), allow_outside=False).read(str(tmp_path / name))
    with pytest.raises(OutsideFileError):
        ProjectFiles(str(tmp_path / "folder"), allow_outside=False).read(str(tmp_path / name / ".." / "pipe"))


VARIABLES = "".join(f"      V{number}: b\n" for number in range(2_000))
BOMBS = {
    "services that extend one": "services:\n  base:\n    image: a\n    environment:\n"
    + VARIABLES
    + "".join(f"  s{number}: {{extends: base}}\n" for number in range(2_000)),
    "a long variable": f"services: {{a: {{image: a, command: ['{'$A' * 40_000}']}}}}",
    "a long variable in services": "services:\n"
    + "".join(f"  s{number}: {{image: a, command: [$A]}}\n" for number in range(2_000)),
}
DEAR = ("services that extend one",)
SECONDS = 12.0


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name in DEAR else []) for name in BOMBS]
)
def test_a_project_that_stands_for_too_much_is_refused_soon(
    project: Path, capfd: pytest.CaptureFixture[str], name: str
) -> None:
    (project / "compose.yaml").write_text(BOMBS[name])
    (project / ".env").write_text(f"A={'x' * 100_000}")
    code, seconds = in_time(manifest, SECONDS)
    assert code == 1, seconds
    shown = capfd.readouterr().err
    assert "convert-too-large" in shown or "the text becomes longer than" in shown
    assert "compose.yaml:" in shown
    assert len(shown) < 150_000
