"""`install` makes the service and nothing twice, `uninstall` removes it and keeps what people would miss."""

from __future__ import annotations

import os
import stat
import sys
import tempfile
from pathlib import Path

import pytest

from reconciler.cli.service.machine import Machine
from reconciler.settings import load_settings
from tests.support.command_sandbox import CommandResult, here
from tests.support.git import GitRepo
from tests.support.programs import only_root, tool

GVC = "kind: gvc\nname: app\nspec: {staticPlacement: {locationLinks: [//location/here]}}\n"
SETTINGS = """org: acme
state: /var/lib/reconciler
sources: [{name: main, url: /srv/git/manifests.git, branch: main}]
locations: {here: {engine: recorded}}
"""
UNITS = "etc/systemd/system"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The files of another machine, which has the program."""
    for program in ("systemctl", "systemd-sysusers"):
        tool(program, "systemd")
    root = tmp_path / "machine"
    (root / "usr/bin").mkdir(parents=True)
    (root / "usr/bin/reconciler").touch()
    (root / "etc").mkdir()
    (tmp_path / "settings.yaml").write_text(SETTINGS)
    return root


def call(root: Path, command: str, *words: str) -> CommandResult:
    """``reconciler COMMAND --root ROOT WORDS``, from the directory with the settings."""
    return here(command, "--root", str(root), *words, cwd=root.parent)


def tree(root: Path) -> dict[str, int]:
    """Path → mode of all there is, with the user's files left out."""
    paths = [path for path in root.rglob("*") if path.parent != root / "etc" or path.is_dir()]
    return {str(path.relative_to(root)): stat.S_IMODE(path.lstat().st_mode) for path in paths}


@only_root("only root makes users")
def test_the_service_is_made_once_and_can_be_taken_away(root: Path) -> None:
    before = tree(root)
    planned = call(root, "install", "--settings", "settings.yaml", "--dry-run")
    assert (planned.code, tree(root)) == (0, before), "a dry run makes nothing"
    installed = call(root, "install", "--settings", "settings.yaml")
    assert installed.code == 0, installed
    steps = [line for line in installed.out.splitlines() if not line.startswith(("    undo: ", "To undo"))]
    assert [line.split(" ", 2)[2] for line in planned.out.splitlines()] == [line.split(" ", 1)[1] for line in steps]
    assert installed.out.count("    undo: ") == len(steps)

    account = Machine(root).find_account()
    assert account is not None
    owners = {name: (found.st_uid, found.st_gid) for name in tree(root) for found in [(root / name).lstat()]}
    modes = tree(root)
    assert (modes["var/lib/reconciler"], owners["var/lib/reconciler"]) == (0o700, account)
    assert (modes["etc/reconciler/secrets"], owners["etc/reconciler/secrets"]) == (0o750, (0, account.gid))
    assert modes[f"{UNITS}/reconciler.service"] == modes["etc/reconciler/settings.yaml"] == 0o644
    assert os.path.lexists(root / UNITS / "multi-user.target.wants/reconciler.service")
    assert "source main: there is no repository at /srv/git/manifests.git yet" in installed.err

    again = call(root, "install", "--settings", "settings.yaml")
    assert again.out == "all of it is installed already: nothing to do\n"
    assert tree(root) == modes

    removed = call(root, "uninstall")
    assert removed.code == 0, removed
    assert f"{root}/etc/reconciler/settings.yaml stays" in removed.out
    assert "var/lib/reconciler stays, with records and logs, and so does the user reconciler" in removed.out
    assert not list((root / UNITS).rglob("reconciler*"))
    assert "nothing of the service is here" in call(root, "uninstall").out


@only_root("only root makes users")
@pytest.mark.parametrize("place", ["volumes/shop/data/0", "deleted-volumes/shop/data/0-20261129T120000Z"])
def test_a_purge_keeps_volumes_until_they_are_named(root: Path, place: str) -> None:
    assert call(root, "install", "--settings", "settings.yaml").code == 0
    data = root / "var/lib/reconciler/host/here" / place
    data.mkdir(parents=True)
    (data / "rows").write_text("dear\n")
    purged = call(root, "uninstall", "--purge")
    assert (purged.code, (data / "rows").read_text()) == (0, "dear\n"), purged
    assert "stays, with 1 set of volumes, and so does the user reconciler" in purged.out
    assert not (root / "etc/reconciler").exists()
    assert Machine(root).find_account() is not None, "the files keep their owner's name"
    planned = call(root, "uninstall", "--purge", "--volumes", "--dry-run")
    assert "records, logs and volumes" in planned.out
    assert data.exists()
    assert call(root, "uninstall", "--purge", "--volumes").code == 0
    assert not (root / "var/lib/reconciler").exists()
    assert Machine(root).find_account() is None


@only_root("only root makes users")
def test_what_a_package_brought_is_left_to_it(root: Path) -> None:
    (root / "usr/lib/systemd/system").mkdir(parents=True)
    (root / "usr/lib/systemd/system/reconciler.service").write_text("[Install]\nWantedBy=multi-user.target\n")
    (root / "usr/lib/sysusers.d").mkdir()
    (root / "usr/lib/sysusers.d/reconciler.conf").write_text("u reconciler - - /var/lib/reconciler\n")
    assert call(root, "install", "--settings", "settings.yaml").code == 0
    assert not (root / UNITS / "reconciler.service").exists()
    assert Machine(root).is_enabled
    removed = call(root, "uninstall")
    assert "they belong to a package" in removed.out
    assert (root / "usr/lib/systemd/system/reconciler.service").exists()
    assert not Machine(root).is_enabled


@only_root("only root makes users")
def put_program(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let the command that runs be ``folder/reconciler``."""
    folder.mkdir(exist_ok=True)
    (folder / "reconciler").touch(mode=0o755)
    monkeypatch.setattr(sys, "executable", str(folder / "python3"))
    return folder / "reconciler"


def test_another_place_of_program_and_repository_is_written_beside_the_unit(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "usr/bin/reconciler").unlink()
    with tempfile.TemporaryDirectory(dir=Path.home()) as home:
        put_program(Path(home), monkeypatch)
        refused = call(root, "install", "--settings", "settings.yaml")
    assert (refused.code, "is in a home, where the service cannot read it" in refused.err) == (1, True), refused
    program = put_program(root.parent / "bin", monkeypatch)
    (root.parent / "settings.yaml").write_text(SETTINGS.replace("/srv/git/manifests.git", "/var/git/shop"))
    installed = call(root, "install", "--settings", "settings.yaml")
    assert installed.code == 0, installed
    beside = (root / UNITS / "reconciler.service.d/install.conf").read_text()
    command = f"ExecStart={program} run --settings /etc/reconciler/settings.yaml\n"
    assert beside.endswith(f"[Service]\nExecStart=\n{command}ReadWritePaths=-/var/git/shop\n")


@only_root("only root makes users")
@pytest.mark.parametrize(
    ("settings", "code", "message"),
    [
        (SETTINGS.replace("/srv/git/manifests.git", "/root/shop"), 1, "git clone --bare /root/shop /srv/git/shop.git"),
        (SETTINGS.replace("/srv/git/manifests.git", "manifests"), 2, "has a relative path"),
        (SETTINGS.replace("/var/lib/reconciler", "/tmp/state"), 2, "write `state: /var/lib/reconciler`"),
        ("org: acme\n", 2, "sources"),
        (None, 2, "reconciler settings init --out FILE, then install --settings FILE"),
    ],
    ids=["home", "relative", "state", "invalid", "none"],
)
def test_settings_that_cannot_run_are_refused_and_nothing_is_made(
    root: Path, settings: str | None, code: int, message: str
) -> None:
    before = tree(root)
    (root.parent / "settings.yaml").write_text(settings or "")
    refused = call(root, "install", *(["--settings", "settings.yaml"] if settings else []))
    assert (refused.code, message in refused.err) == (code, True), refused
    assert tree(root) == before


@only_root("only root makes users")
def test_other_settings_are_replaced_only_by_force(root: Path) -> None:
    assert call(root, "install", "--settings", "settings.yaml").code == 0
    (root.parent / "settings.yaml").write_text(SETTINGS.replace("acme", "other"))
    refused = call(root, "install", "--settings", "settings.yaml")
    assert (refused.code, "edit it there, or replace it with --force" in refused.err) == (1, True)
    assert call(root, "install", "--settings", "settings.yaml", "--force").code == 0
    assert "org: other" in (root / "etc/reconciler/settings.yaml").read_text()


def test_volumes_alone_and_a_root_that_is_missing_are_wrong_uses(tmp_path: Path) -> None:
    for words in (["uninstall", "--volumes"], ["install", "--root", "nowhere"]):
        result = here(*words, cwd=tmp_path)
        assert (result.code, result.out) == (2, ""), result


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with a manifest, and a state home beside it."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    GitRepo.create(tmp_path / "shop", {"deploy/gvc.yaml": GVC}, bare=False)
    return tmp_path / "shop"


def test_settings_for_a_directory_are_those_that_up_would_use(folder: Path) -> None:
    written = here("settings", "init", "shop", "--out", "settings.yaml", "--org", "acme", cwd=folder.parent)
    assert written.code == 0, written
    assert "reconciler install --settings settings.yaml" in written.out
    file = folder.parent / "settings.yaml"
    settings = load_settings(file)
    assert (settings.org, str(settings.state)) == ("acme", "/var/lib/reconciler")
    assert [(source.url, source.branch, source.interval) for source in settings.sources] == [(str(folder), "main", 30)]
    assert {name: location.engine for name, location in settings.locations.items()} == {"here": "host"}
    assert settings.host.termination_scale == 1, "as people depend on it"
    checked = here("settings", "validate", "settings.yaml", cwd=folder.parent)
    assert checked.out == "settings.yaml is valid: 1 source, 1 location, state in /var/lib/reconciler\n"
    refused = here("settings", "init", "shop", "--out", "settings.yaml", cwd=folder.parent)
    assert (refused.code, "--force does so" in refused.err) == (1, True)


def test_settings_that_up_wrote_are_taken_as_they_are(folder: Path) -> None:
    from reconciler.cli.local.followed_source import choose_source
    from reconciler.cli.local_settings import write_settings

    file = write_settings(choose_source(str(folder)), ["elsewhere"], "mine")
    file.write_text(file.read_text() + "onInvalid: skip\n")
    text = here("settings", "init", cwd=folder).out
    for line in ("org: mine\n", "  elsewhere:\n", "onInvalid: skip\n"):
        assert line in text
    assert "terminationScale" not in text


def test_settings_that_a_person_adds_to_those_of_up_go_to_the_service(folder: Path) -> None:
    from reconciler.cli.local.followed_source import choose_source
    from reconciler.cli.local_settings import write_settings

    more = ("secrets.identity=/etc/key", "locations.here.ingress={httpPort: 8080}")
    settings = load_settings(write_settings(choose_source(str(folder)), ["here"], "mine", more))
    ingress = settings.locations["here"].ingress
    assert (str(settings.secrets.identity), ingress and ingress.http_port) == ("/etc/key", 8080)
    assert "  identity: /etc/key\n" in here("settings", "init", cwd=folder).out
    for words, message in (("secrets", "write PROPERTY=VALUE"), ("secretz.identity=x", "secretz")):
        wrong = here("up", "--detach", "--set", words, cwd=folder)
        assert (wrong.code, message in wrong.err) == (2, True), wrong


def test_settings_of_converted_files_are_refused_with_the_way(folder: Path) -> None:
    from reconciler.cli.local.converted_source import follow_converted
    from reconciler.cli.local_settings import write_settings

    (folder.parent / "compose.yaml").write_text("services: {web: {image: 'nginx:1'}}\n")
    write_settings(follow_converted([str(folder.parent / "compose.yaml")]).followed, ["local"], "org")
    refused = here("settings", "init", cwd=folder.parent)
    assert (refused.code, "reconciler convert --commit --location local FILE" in refused.err) == (1, True), refused


def test_wrong_settings_are_reported_with_their_places(tmp_path: Path) -> None:
    (tmp_path / "settings.yaml").write_text("org: acme\nsources: [{name: main, url: x, brunch: main}]\n")
    result = here("settings", "validate", "settings.yaml", cwd=tmp_path)
    assert (result.code, result.out) == (2, "")
    assert "settings.yaml:2:" in result.err
    assert "brunch" in result.err
