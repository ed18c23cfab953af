"""The settings file: its fields, their defaults, and the messages for its faults."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from reconciler.documents.schema.loader import load_schema
from reconciler.errors import UsageError
from reconciler.settings import DEFAULT_PATH, Settings, is_local, load_settings, settings_path
from tests.documents.tree import full

SMALLEST: dict[str, Any] = {"org": "acme", "sources": [{"name": "main", "url": "/srv/git/manifests.git"}]}


def written(path: Path, value: Any) -> Path:
    path.write_text(value if isinstance(value, str) else yaml.safe_dump(value), encoding="utf-8")
    return path


def refusal(path: Path) -> list[str]:
    with pytest.raises(UsageError) as caught:
        load_settings(path)
    return str(caught.value).splitlines()


def with_defaults(schema: dict[str, Any], value: Any) -> Any:
    """``value`` with every default of ``schema`` written out."""
    if isinstance(value, list):
        return [with_defaults(schema["items"], item) for item in value]
    if not isinstance(value, dict):
        return value
    properties = schema.get("properties", {})
    rest = {name: copy.deepcopy(child["default"]) for name, child in properties.items() if "default" in child}
    return {
        name: with_defaults(properties[name], member) if name in properties else member
        for name, member in {**rest, **value}.items()
    }


def test_the_defaults_of_the_schema_are_those_of_the_loader(tmp_path: Path) -> None:
    complete = with_defaults(load_schema("settings"), SMALLEST)
    assert {"retry", "state", "parallel", "locations"} <= set(complete)
    assert load_settings(written(tmp_path / "a.yaml", SMALLEST)) == load_settings(
        written(tmp_path / "b.yaml", complete)
    )


def test_the_smallest_settings_follow_main_and_are_careful(tmp_path: Path) -> None:
    settings = load_settings(written(tmp_path / "settings.yaml", SMALLEST))
    (source,) = settings.sources
    assert (source.name, source.branch, source.tag, source.commit, source.path) == ("main", "main", "", "", ".")
    assert (source.interval, source.timeout, source.status.branch) == (30.0, 60.0, "reconciler/status")
    assert source.credentials.token_file is None
    assert settings.state == Path("/var/lib/reconciler")
    assert (settings.on_invalid, settings.prune.count, settings.prune.percent) == ("refuse", 10, 20.0)
    assert (settings.retry.base, settings.retry.cap, settings.stale) == (1.0, 600.0, 600.0)


def test_every_setting_arrives(tmp_path: Path) -> None:
    settings = load_settings(written(tmp_path / "settings.yaml", full("settings")[0]))
    main, tagged, pinned = settings.sources
    assert settings.state == tmp_path / "state"
    assert settings.external == ("//agent/office", "/org/acme/user/a@example.com")
    assert (settings.on_invalid, settings.parallel, settings.stale) == ("skip", 4, 86400.0)
    assert (settings.retry.base, settings.retry.cap, settings.retry.attempts) == (0.5, 3600.0, 5)
    assert (settings.prune.enabled, settings.prune.count, settings.prune.percent) == (False, 0, 12.5)
    assert settings.events.keep == 5
    assert settings.locations["aws-us-west-2"].engine == "recorded"
    assert (settings.log.format, settings.log.level) == ("json", "debug")
    assert (main.interval, main.timeout, main.allow_rewrite, main.read_only) == (90.0, 120.0, True, True)
    assert (main.include, main.exclude) == (("shop/**",), ("**/draft-*",))
    assert (main.status.branch, main.status.interval, main.status.push) == ("reconciler/status-west", 10.0, False)
    assert main.verify is not None
    assert (main.verify.signed, main.verify.gpg_keyring) == ("history", tmp_path / "signers.asc")
    assert (main.verify.allowed_signers, main.verify.revoked_keys) == (
        tmp_path / "allowed_signers",
        tmp_path / "revoked_keys",
    )
    assert (tagged.branch, tagged.tag) == ("", "v1.2")
    assert (pinned.branch, pinned.commit) == ("", "0123456789abcdef0123456789abcdef01234567")


def test_paths_start_at_the_directory_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "etc").mkdir()
    written(tmp_path / "etc" / "settings.yaml", full("settings")[0])
    monkeypatch.chdir(tmp_path)
    settings = load_settings(Path("etc/settings.yaml"))
    main, tagged, pinned = settings.sources
    assert settings.state == tmp_path / "etc" / "state"
    assert main.credentials.token_file == tmp_path / "etc" / "token"
    assert main.credentials.key_file == Path("/etc/reconciler/id_ed25519")
    assert pinned.url == str(tmp_path / "etc" / ".." / "manifests")
    assert pinned.local
    assert main.url == "https://git.example.com/ops/manifests.git"
    assert tagged.url == "git@git.example.com:ops/manifests.git"


@pytest.mark.parametrize(
    ("url", "local"),
    [
        ("/srv/git/m.git", True),
        ("m.git", True),
        ("./a:b", True),
        ("https://example.com/m.git", False),
        ("ssh://git@example.com/m.git", False),
        ("git@example.com:m.git", False),
        ("example.com:m.git", False),
    ],
)
def test_a_path_is_distinguished_from_an_address(url: str, local: bool) -> None:
    assert is_local(url) is local


def test_a_duration_may_be_a_plain_number_of_seconds(tmp_path: Path) -> None:
    value = {**SMALLEST, "stale": 90, "approvalLasts": "3600", "retry": {"base": 0.5}}
    settings = load_settings(written(tmp_path / "settings.yaml", value))
    assert (settings.stale, settings.approval_lasts, settings.retry.base) == (90.0, 3600.0, 0.5)


@pytest.mark.parametrize("value", [-1, True, "-1", "soon", "1 s", "9" * 13, None])
def test_a_value_that_is_no_duration_is_refused(tmp_path: Path, value: object) -> None:
    (line,) = refusal(written(tmp_path / "settings.yaml", {**SMALLEST, "stale": value}))
    assert ":6:" in line or ":5:" in line


def test_a_word_that_may_be_a_boolean_is_put_in_quotes_where_text_is_wanted(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("org: no\nstate: y\nsources:\n- {name: on, url: /a, allowRewrite: off}\n")
    advice = [line.rpartition(" (")[2].rstrip(")") for line in refusal(file)]
    assert advice == ['write "no" in quotes', 'write "y" in quotes', 'write "on" in quotes', "write false"]


def test_every_fault_of_the_settings_has_its_place_and_a_way_out(tmp_path: Path) -> None:
    text = """\
org: acme
statte: /var/lib/reconciler
parallel: many
sources:
- name: main
  url: /srv/git/manifests.git
  interval: [30]
"""
    path = written(tmp_path / "settings.yaml", text)
    assert refusal(path) == [
        f"{path}:2:1: unknown field `statte` (did you mean `state`?)",
        f"{path}:3:11: expected a whole number, got text (many)",
        f"{path}:7:13: expected text or a number, got a list",
    ]


def test_a_syntax_error_is_reported_with_its_place(tmp_path: Path) -> None:
    path = written(tmp_path / "settings.yaml", "org: [acme\nsources: []\n")
    (line,) = refusal(path)
    assert line.startswith(f"{path}:")


@pytest.mark.parametrize("text", ["", "# nothing\n", "org: a\n---\norg: b\n"])
def test_settings_are_one_document(tmp_path: Path, text: str) -> None:
    assert "one YAML document" in refusal(written(tmp_path / "settings.yaml", text))[0]


def test_two_sources_of_one_name_are_refused(tmp_path: Path) -> None:
    text = "org: acme\nsources:\n- {name: main, url: /a}\n- {name: main, url: /b}\n"
    path = written(tmp_path / "settings.yaml", text)
    assert refusal(path) == [f"{path}:4:10: two sources are named `main` (give each a name of its own)"]


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    (line,) = refusal(tmp_path / "none.yaml")
    assert f"cannot read the settings {tmp_path / 'none.yaml'}" in line
    assert "--settings, or run a directory without any: reconciler up" in line


def test_the_option_wins_over_the_environment_and_that_over_the_usual_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RECONCILER_SETTINGS", raising=False)
    assert settings_path(None) == Path(DEFAULT_PATH)
    monkeypatch.setenv("RECONCILER_SETTINGS", "/tmp/from-environment.yaml")
    assert settings_path(None) == Path("/tmp/from-environment.yaml")
    assert settings_path("/tmp/option.yaml") == Path("/tmp/option.yaml")


def test_settings_cannot_be_changed(tmp_path: Path) -> None:
    settings = load_settings(written(tmp_path / "settings.yaml", SMALLEST))
    with pytest.raises(AttributeError):
        settings.org = "other"  # type: ignore[misc]
    assert msgspec.structs.replace(settings, org="other").org == "other"
    assert isinstance(settings, Settings)


HERE: dict[str, Any] = {"name": "one", "url": "manifests"}


@pytest.mark.parametrize(
    ("sources", "complaint"),
    [
        ([HERE | {"status": {"branch": "main"}}], "cannot go to `main`, the branch that `one` follows"),
        (
            [HERE, {"name": "two", "url": "./manifests/", "path": "b"}],
            "`one` and `two` would write their status to one",
        ),
        ([HERE, {"name": "two", "url": "manifests/.git", "tag": "v1"}], "`one` and `two` would write their status"),
        (
            [HERE, {"name": "two", "url": "manifests", "branch": "reconciler/status", "readOnly": True}],
            "that `two` follows",
        ),
        (
            [{"name": "one", "url": "https://git/m.git"}, {"name": "two", "url": "https://git/m"}],
            "such as `status: {branch: reconciler/status-two}`",
        ),
    ],
)
def test_no_two_sources_write_one_status_branch_and_none_writes_what_is_followed(
    tmp_path: Path, sources: list[dict[str, Any]], complaint: str
) -> None:
    assert complaint in " ".join(refusal(written(tmp_path / "settings.yaml", SMALLEST | {"sources": sources})))


@pytest.mark.parametrize(
    "second",
    [
        {"url": "manifests", "status": {"branch": "status/two"}},
        {"url": "manifests", "readOnly": True},
        {"url": "others"},
    ],
    ids=["another branch", "none in the repository", "another repository"],
)
def test_two_sources_that_keep_their_status_apart_are_fine(tmp_path: Path, second: dict[str, Any]) -> None:
    sources = [HERE, {"name": "two", "path": "b"} | second]
    assert len(load_settings(written(tmp_path / "settings.yaml", SMALLEST | {"sources": sources})).sources) == 2
