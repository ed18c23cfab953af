"""`reconciler volume import`: where to, where from, and what is refused before anything is fetched."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.command_sandbox import SETTINGS, CommandResult, here

KEY = "volumeset/shop/data"
HOSTS = SETTINGS.replace("engine: recorded", "engine: host, runtime: process")
EXPORT = "snapshots: {export: {restic: {repository: none, passwordFile: password}}}\n"


def run(path: Path, settings: str, *words: str) -> CommandResult:
    (path / "settings.yaml").write_text(settings)
    return here("volume", "import", *words, cwd=path)


@pytest.mark.parametrize(
    ("settings", "words", "message"),
    [
        (HOSTS, (KEY, "nightly"), "the settings have no `snapshots.export.restic` to import from"),
        (SETTINGS + EXPORT, (KEY, "nightly"), "locations that can do this: none"),
        (HOSTS + EXPORT, (KEY, "nightly"), "name one of here, there with --location"),
        (HOSTS + EXPORT, (KEY, "nightly", "--location", "mars"), "locations that can do this: here, there"),
        (HOSTS + EXPORT, ("workload/shop/web", "nightly"), "workload/shop/web is no volume set; only volume sets have"),
    ],
)
def test_an_import_needs_a_repository_and_a_location(
    tmp_path: Path, settings: str, words: tuple[str, ...], message: str
) -> None:
    refused = run(tmp_path, settings, *words)
    assert (refused.code, refused.out) == (2, "")
    assert message in refused.err


def test_a_name_that_leads_to_another_directory_and_a_missing_password_are_refused(tmp_path: Path) -> None:
    place = ("--location", "here")
    assert "a snapshot cannot have this name" in run(tmp_path, HOSTS + EXPORT, KEY, "../x", *place).err
    refused = run(tmp_path, HOSTS + EXPORT, KEY, "nightly", *place)
    assert (refused.code, refused.err) == (1, f"error: the file of the password, {tmp_path}/password, cannot be read\n")
    assert not (tmp_path / "state" / "host").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((KEY, "nightly", "workload/shop/web"), "workload/shop/web is no volume set"),
        ((KEY, "nightly", KEY), "name another volume set to clone to"),
        ((KEY, "nightly", "volumeset/preview/data"), "there are no records"),
    ],
)
def test_a_clone_is_of_two_volume_sets_that_exist(tmp_path: Path, words: tuple[str, ...], message: str) -> None:
    (tmp_path / "settings.yaml").write_text(HOSTS)
    refused = here("volume", "clone", *words, "--location", "here", cwd=tmp_path)
    assert refused.code != 0
    assert message in refused.err
