"""Encrypted secrets, and those in files of the host, from a commit to the records: revealed nowhere on the way."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from reconciler.daemon.secret_monitor import HostSecretMonitor
from reconciler.decode.cache import Blobs, Cache
from reconciler.decode.decode import MANY, decode_all
from reconciler.errors import SourceError
from reconciler.manifests.decoder import Decoded
from reconciler.manifests.normalize import ManifestContext
from reconciler.model.finding import Severity
from reconciler.model.kinds.secret import HostPlace
from reconciler.model.revision import FileChange
from reconciler.pipeline.externals import ExternalResources
from reconciler.records.store import Records
from reconciler.review.compare import plan_between
from reconciler.review.folder import check_folder
from reconciler.secrets.host_files import HostSecretDirectory, HostSecretError, keyring_of
from reconciler.settings import SecretSettings, Settings, SourceSecretSettings
from reconciler.sops.encrypt import EncryptionRules, decrypt_file, encrypt_secrets, reencrypt_secrets, rotate_key
from reconciler.sops.keys import Keyring
from tests.support.pipeline import BASE, PipelineHarness, shown
from tests.support.rule_cases import private
from tests.support.sops import MOMENT, fresh

CANARY = "correct-horse"
OTHER = "battery-staple"
LATER = "2027-01-02T03:04:05Z"
SECRET = f"kind: secret\nname: db\ntype: dictionary\ndata:\n  user: shop\n  password: {CANARY}\n".encode()
IDENTITY, RECIPIENT = fresh()
RING = Keyring((IDENTITY,), required=True)
WEB = """kind: workload
name: web
gvc: shop
spec:
  type: standard
  identityLink: //identity/web
  containers:
  - {name: main, image: "nginx:1.27", env: [{name: PASSWORD, value: platform://secret/db.password}]}
---
kind: identity
name: web
gvc: shop
---
kind: policy
name: web-reveals-db
targetKind: secret
targetLinks: [//secret/db]
bindings: [{permissions: [reveal], principalLinks: [//gvc/shop/identity/web]}]
"""


DATA = EncryptionRules()


def sealed(text: bytes = SECRET, manner: EncryptionRules = DATA) -> bytes:
    """``text`` encrypted for the identity of these tests."""
    return encrypt_secrets(text, [RECIPIENT], manner, MOMENT)


def secrets(folder: Path, identity: str = IDENTITY, **more: object) -> SecretSettings:
    """Settings with ``identity``, in a file for root alone."""
    found = SecretSettings(private(folder / "host" / "identity.txt", identity), directory=folder / "host")
    return msgspec.structs.replace(found, **more)


def on_disk(folder: Path) -> set[str]:
    """Files below ``folder`` that hold a canary, but for those that lie on the host."""
    paths = (path for path in folder.rglob("*") if path.is_file() and "host" not in path.relative_to(folder).parts)
    return {
        str(path.relative_to(folder))
        for path in paths
        if any(each.encode() in path.read_bytes() for each in (CANARY, OTHER))
    }


def test_an_encrypted_secret_is_applied_and_never_written_to_disk(tmp_path: Path) -> None:
    records = Records.open(tmp_path / "records.sqlite")
    files = {"shop/gvc.yaml": BASE, "web.yaml": WEB, "db.yaml": sealed()}
    harness = PipelineHarness(tmp_path / "way", files, records=records, secrets=secrets(tmp_path))
    harness.applied()
    record = harness.recorded()["secret/db"]
    assert msgspec.json.decode(record.body)["data"].keys() == {"user", "password"}
    assert records.secret_data.get("secret/db", record.digest) is None
    assert on_disk(tmp_path) == set()
    assert harness.plan().steps == ()


def test_another_encryption_of_the_same_is_no_change(tmp_path: Path) -> None:
    harness = PipelineHarness(tmp_path / "way", {"db.yaml": sealed()}, secrets=secrets(tmp_path))
    harness.applied()
    for raw in (
        rotate_key(sealed(), RING, [fresh()[1]], [], LATER),
        sealed(manner=EncryptionRules("unencrypted_suffix", "_no")),
        sealed(manner=EncryptionRules("encrypted_suffix", "word")),
    ):
        harness.commit({"db.yaml": raw})
        assert harness.plan().steps == ()


def test_a_new_value_is_a_change_that_shows_none(tmp_path: Path) -> None:
    harness = PipelineHarness(tmp_path / "way", {"db.yaml": sealed()}, secrets=secrets(tmp_path))
    harness.applied()
    edited = decrypt_file(sealed(), RING)
    harness.commit({"db.yaml": reencrypt_secrets(edited, edited.text.replace(CANARY.encode(), OTHER.encode()), LATER)})
    (step,) = harness.plan().steps
    assert [change.path for change in step.changes] == ["data.password"]
    assert CANARY not in repr(harness.plan())
    assert OTHER not in repr(harness.plan())
    harness.applied()


@pytest.mark.parametrize(
    "manner", [EncryptionRules(), EncryptionRules("unencrypted_suffix", "_no")], ids=["data", "whole"]
)
def test_a_secret_that_cannot_be_decrypted_is_refused_until_it_can(tmp_path: Path, manner: EncryptionRules) -> None:
    files = {"shop/gvc.yaml": BASE, "web.yaml": WEB, "db.yaml": sealed(manner=manner)}
    harness = PipelineHarness(tmp_path / "way", files, secrets=secrets(tmp_path, fresh()[0]))
    assert [each.rule for each in harness.prepare().findings] == ["secret-key-wrong"]
    assert harness.apply().outcome == "refused"
    private(tmp_path / "host" / "identity.txt", IDENTITY)
    harness.applied()
    assert "secret/db" in harness.recorded()


def test_a_secret_that_can_no_longer_be_decrypted_is_not_deleted(tmp_path: Path, host: Path) -> None:
    key = "kind: secret\nname: key\ntype: opaque\ndata: {payload: {file: db}}\n"
    harness = PipelineHarness(
        tmp_path / "way", {"shop/gvc.yaml": BASE, "db.yaml": sealed(), "key.yaml": key}, secrets=secrets(tmp_path)
    )
    harness.applied()
    for name, lost, text, raw in (
        ("db", "identity.txt", IDENTITY, sealed(SECRET + b"  more: x\n")),
        ("key", "db", CANARY, f"{key}tags: {{a: b}}\n"),
    ):
        harness.commit({f"{name}.yaml": raw})
        harness.accept(harness.prepare())
        (host / lost).unlink()
        harness.pipeline = harness.new_pipeline()
        with pytest.raises(SourceError, match=f"secret/{name} can no longer be opened"):
            harness.prepare()
        private(host / lost, text)
        assert [str(step.key) for step in harness.plan().steps] == [f"secret/{name}"]
        harness.applied()


def test_readers_of_a_secret_can_change_while_it_cannot_be_decrypted(tmp_path: Path) -> None:
    files = {"shop/gvc.yaml": BASE, "web.yaml": WEB, "db.yaml": sealed()}
    harness = PipelineHarness(tmp_path / "way", files, secrets=secrets(tmp_path))
    harness.applied()
    (tmp_path / "host" / "identity.txt").unlink()
    harness.commit({"web.yaml": WEB.replace("1.27", "1.28")})
    harness.applied()
    harness.commit({"web.yaml": WEB.replace("db.password", "db.pasword")})
    assert [each.rule for each in harness.prepare().findings] == ["secret-key"]


def test_plain_secrets_are_refused_where_only_encrypted_ones_are_taken(tmp_path: Path) -> None:
    harness = PipelineHarness(tmp_path / "way", {"db.yaml": SECRET}, secrets=secrets(tmp_path))
    assert [(finding.rule, finding.severity) for finding in harness.prepare().findings] == [
        ("secret-plain-text", "warning")
    ]
    harness.applied()
    strict = PipelineHarness(
        tmp_path / "strict", {"db.yaml": SECRET}, secrets=secrets(tmp_path, policy="encrypted-only")
    )
    assert [(finding.rule, finding.severity) for finding in strict.prepare().findings] == [
        ("secret-plain-text", "error")
    ]
    strict.commit({"db.yaml": sealed()})
    strict.applied()


def test_faults_in_encrypted_values_are_reported_at_their_place_without_the_value(tmp_path: Path) -> None:
    wrong = SECRET.replace(b"type: dictionary", b"type: userpass").replace(b"user: shop", b"encoding: base64")
    wrong = wrong.replace(b"password", b"pasword")
    harness = PipelineHarness(tmp_path / "way", {"db.yaml": sealed(wrong)}, secrets=secrets(tmp_path))
    findings = shown(harness.prepare().findings)
    assert [each.split(" ")[0] for each in findings] == ["db.yaml:5:3", "db.yaml:5:3", "db.yaml:6:3"]
    assert not any(CANARY in each for each in findings)


def hosted(name: str = "db") -> str:
    """A secret whose password stands in the file ``name`` of the host."""
    head = "kind: secret\nname: db\ntype: dictionary\ndata:\n"
    return f"{head}  user: {{credential: user}}\n  password: {{file: {name}}}\n"


@pytest.fixture(name="host")
def _host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of the host's secrets, with ``db`` in it, and the credential ``user``."""
    (tmp_path / "credentials-host" / "host").mkdir(parents=True)
    private(tmp_path / "credentials-host" / "host" / "user", "shop\n")
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path / "credentials-host" / "host"))
    private(tmp_path / "host" / "db", f"{CANARY}\n")
    return tmp_path / "host"


def test_a_secret_of_the_host_is_the_same_as_the_encrypted_one(tmp_path: Path, host: Path) -> None:
    records = Records.open(tmp_path / "records.sqlite")
    harness = PipelineHarness(tmp_path / "way", {"db.yaml": hosted()}, records=records, secrets=secrets(tmp_path))
    assert harness.prepare().findings == []
    harness.applied()
    harness.commit({"db.yaml": sealed()})
    assert harness.plan().steps == ()
    assert on_disk(tmp_path) == set()


def test_a_file_that_changed_is_taken_up_though_nothing_else_did(tmp_path: Path, host: Path) -> None:
    harness = PipelineHarness(tmp_path / "way", {"db.yaml": hosted()}, secrets=secrets(tmp_path))
    harness.applied()
    watch = HostSecretMonitor(harness.records, {"main": harness.pipeline.view})
    assert watch.check() == set()
    (host / "db").write_text(OTHER)
    assert watch.check() == {"main"}
    (step,) = harness.plan().steps
    assert [change.path for change in step.changes] == ["data.password"]
    assert OTHER not in repr(harness.plan())
    harness.applied()
    assert harness.plan().steps == ()
    assert watch.check() == set()


def test_a_missing_secret_file_is_reported_once_and_delays_nothing_else(tmp_path: Path, host: Path) -> None:
    harness = PipelineHarness(tmp_path / "way", {"shop/gvc.yaml": BASE, "db.yaml": hosted()}, secrets=secrets(tmp_path))
    harness.applied()
    watch = HostSecretMonitor(harness.records, {"main": harness.pipeline.view})
    (host / "db").unlink()
    assert [watch.check() for _ in range(3)] == [set()] * 3
    [event] = [each for each in harness.records.events.list() if each.reason == "SecretLost"]
    assert (event.key, event.message.partition(":")[0]) == ("secret/db", "db.yaml")
    harness.commit({"shop/gvc.yaml": f"{BASE}tags: {{a: b}}\n"})
    harness.applied()
    private(host / "db", OTHER)
    assert watch.check() == {"main"}


@pytest.mark.parametrize(
    ("name", "mode", "rule"),
    [
        ("db", 0o644, "secret-file-unsafe"),
        ("db", 0o620, "secret-file-unsafe"),
        ("gone", 0o600, "secret-file-missing"),
        ("../records", 0o600, "secret-file-unsafe"),
        ("link", 0o600, "secret-file-unsafe"),
        ("dir", 0o600, "secret-file-missing"),
        ("pipe", 0o600, "secret-file-missing"),
        ("empty", 0o600, "secret-file-missing"),
        ("bytes", 0o600, "secret-file-missing"),
        ("large", 0o600, "secret-file-missing"),
        ('"a\\tb"', 0o600, "secret-file-missing"),
    ],
)
def test_files_that_cannot_be_secrets_are_reported(tmp_path: Path, host: Path, name: str, mode: int, rule: str) -> None:
    (host / "db").chmod(mode)
    (host / "link").symlink_to("/etc/passwd")
    (host / "dir").mkdir(mode=0o700)
    os.mkfifo(host / "pipe", 0o600)
    private(host / "empty", "")
    private(host / "large", "x" * (1 << 20) + "y")
    private(host / "bytes", "")
    (host / "bytes").write_bytes(b"\xff\xfe")
    harness = PipelineHarness(tmp_path / "way", {"db.yaml": hosted(name)}, secrets=secrets(tmp_path))
    (finding,) = harness.prepare().findings
    assert (finding.rule, finding.line, finding.column) == (rule, 6, 13)
    assert CANARY not in repr(finding)


@pytest.mark.parametrize(("text", "value"), [("a\n", "a"), ("a", "a"), ("a\nb\n", "a\nb\n"), (" a \n\n", " a \n\n")])
def test_a_single_line_has_no_line_break(tmp_path: Path, host: Path, text: str, value: str) -> None:
    (host / "db").write_text(text)
    harness = PipelineHarness(tmp_path / "way", {"db.yaml": hosted()}, secrets=secrets(tmp_path))
    harness.applied()
    plain = msgspec.json.format(msgspec.json.encode({"user": "shop", "password": value}), indent=0).decode()
    harness.commit({"db.yaml": f"kind: secret\nname: db\ntype: dictionary\ndata: {plain}\n"})
    assert harness.plan().steps == ()


def test_a_name_is_no_way_out_of_the_credentials(tmp_path: Path, host: Path) -> None:
    for name in ("../db", "a/b", ".", "..", '""'):
        files = {"db.yaml": hosted().replace("credential: user", f"credential: {name}")}
        harness = PipelineHarness(tmp_path / f"way-{name.replace('/', '-')}", files, secrets=secrets(tmp_path))
        assert [each.rule for each in harness.prepare().findings] == ["secret-file-unsafe"], name


def test_an_identity_that_others_can_read_opens_nothing(tmp_path: Path) -> None:
    settings = PipelineHarness(tmp_path / "way", {"db.yaml": sealed()}, secrets=secrets(tmp_path)).settings
    assert keyring_of(settings).identities == (IDENTITY,)
    (tmp_path / "host" / "identity.txt").chmod(0o644)
    assert "read or changed by others" in keyring_of(settings).absence
    (tmp_path / "host" / "identity.txt").write_text("none")
    (tmp_path / "host" / "identity.txt").chmod(0o600)
    assert "line 1 is not an identity" in keyring_of(settings).absence
    assert IDENTITY not in repr(ManifestContext("acme", keyring=Keyring((IDENTITY,))))


def test_commits_are_compared_without_identity_and_host(tmp_path: Path) -> None:
    harness = PipelineHarness(tmp_path / "way", {"shop/gvc.yaml": BASE, "web.yaml": WEB, "db.yaml": sealed()})
    harness.commit({"db.yaml": hosted()})
    compared = plan_between(harness.settings, harness.settings.sources[0], "HEAD~1", "HEAD")
    assert compared.plan is not None, shown(compared.findings)
    assert [str(step.key) for step in compared.plan.steps] == ["secret/db"]
    harness.commit({"db.yaml": sealed()})
    compared = plan_between(harness.settings, harness.settings.sources[0], "HEAD~1", "HEAD")
    assert [each.rule for each in compared.findings] == ["secret-locked"]
    assert compared.plan is not None


@pytest.mark.parametrize(
    "manner", [EncryptionRules(), EncryptionRules("unencrypted_suffix", "_no")], ids=["data", "whole"]
)
def test_files_can_be_checked_without_decryption(tmp_path: Path, manner: EncryptionRules) -> None:
    for name, raw in {"gvc.yaml": BASE.encode(), "web.yaml": WEB.encode(), "db.yaml": sealed(manner=manner)}.items():
        (tmp_path / name).write_bytes(raw)
    check = check_folder(
        tmp_path, ManifestContext("acme", secrets="encrypted-only"), ExternalResources(settings_unknown=True)
    )
    assert [(finding.rule, finding.severity) for finding in check.findings] == [("secret-locked", "notice")]
    (tmp_path / "web.yaml").write_text(WEB.replace("db.password", "db.pasword"))
    check = check_folder(tmp_path, ManifestContext("acme"), ExternalResources(settings_unknown=True))
    seen = {"secret-key", "secret-locked"} if manner == DATA else {"secret-locked"}
    assert {finding.rule for finding in check.findings} == seen


def test_processes_that_decode_are_handed_the_identity(tmp_path: Path) -> None:
    raw = {f"{number:040x}": sealed() if number % 100 == 0 else b"kind: group\nname: g\n" for number in range(MANY)}
    blobs = Blobs(lambda blob: len(raw[blob]), raw.__getitem__)
    bodies: list[bytes] = []
    cache = Cache(lambda _: {}, lambda pairs: bodies.extend(packed for _, packed in pairs))
    changes = [FileChange(f"{blob}.yaml", "", blob) for blob in raw]
    decodeds: list[Decoded] = [
        each for _, each in decode_all(changes, blobs, cache, ManifestContext("acme", keyring=RING))
    ]
    seals = [manifest.secret_data for each in decodeds for manifest in each.manifests if manifest.secret_data]
    assert len(seals) == MANY / 100
    assert all(CANARY.encode() in seal for seal in seals)
    assert len(bodies) == MANY - len(seals)
    assert not any(CANARY.encode() in packed for packed in bodies)


def test_a_host_without_credentials_reports_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CREDENTIALS_DIRECTORY", raising=False)
    settings = PipelineHarness(tmp_path / "way", {"db.yaml": hosted()}, secrets=secrets(tmp_path)).settings
    with pytest.raises(HostSecretError, match="systemd passed no credentials"):
        HostSecretDirectory.of(settings, settings.sources[0]).text(HostPlace("credential", "db"))


@pytest.fixture(name="two")
def _two(tmp_path: Path, host: Path) -> Callable[..., Settings]:
    """Settings of two sources; options of the first one, the second has the directory of all with ``db`` in it."""
    harness = PipelineHarness(tmp_path / "way", {"db.yaml": hosted()}, secrets=secrets(tmp_path))

    def made(**own: Any) -> Settings:
        first, rest = harness.settings.sources[0], SourceSecretSettings(host, ("user",))
        second = msgspec.structs.replace(first, name="other", secrets=rest)
        first = msgspec.structs.replace(first, secrets=SourceSecretSettings(**own))
        return msgspec.structs.replace(harness.settings, sources=(first, second))

    return made


def host_text(settings: Settings, sort: str, name: str) -> str:
    """The text that the first source gets, or the message of the refusal."""
    try:
        return HostSecretDirectory.of(settings, settings.sources[0]).text(HostPlace(sort, name))
    except HostSecretError as error:
        return f"{error.rule}: {error} ({error.suggestion})"


def test_one_source_among_several_names_no_file_or_credential_of_another(
    tmp_path: Path, two: Callable[..., Settings]
) -> None:
    assert "name no directory for such files of the source main" in host_text(two(), "file", "db")
    assert "in the source's `secrets.directory`" in host_text(two(), "file", "db")
    text = host_text(two(), "credential", "user")
    assert "do not grant the credential `user` to the source main" in text
    private(tmp_path / "own" / "db", "mine\n")
    own = two(directory=tmp_path / "own", credentials=("other",))
    assert host_text(own, "file", "db") == "mine"
    assert "secret-file-unsafe" in host_text(own, "file", "../host/db")
    assert "secret-file-unsafe" in host_text(own, "credential", "user")
    (tmp_path / "own" / "link").symlink_to(tmp_path / "host" / "db")
    assert "secret-file-unsafe" in host_text(own, "file", "link")
    assert host_text(two(credentials=("user",)), "credential", "user") == "shop"


def test_a_source_that_may_not_name_a_file_is_refused_with_its_place(tmp_path: Path, host: Path) -> None:
    records = Records.open(None)
    options: dict[str, Any] = {"records": records, "secrets": secrets(tmp_path)}
    first = PipelineHarness(tmp_path / "first", {"db.yaml": hosted()}, **options)
    second = PipelineHarness(
        tmp_path / "second",
        {"a.yaml": "kind: secret\nname: a\ntype: opaque\ndata: {payload: a}\n"},
        name="other",
        **options,
    )
    both = (*first.settings.sources, *second.settings.sources)
    first.settings = msgspec.structs.replace(first.settings, sources=both)
    first.pipeline = first.new_pipeline()
    prepared = first.prepare()
    assert prepared.plan is None
    assert {(each.path, each.rule) for each in prepared.findings if each.severity is Severity.ERROR} == {
        ("db.yaml", "secret-file-unsafe")
    }
