"""Signed commits and tags: which are accepted, which are refused, and with which message."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from reconciler.errors import SourceError, SourceUnverified, UsageError
from reconciler.settings import VerifySettings
from reconciler.source.source import Source
from tests.source.conftest import Opener
from tests.support.git import GitRepo
from tests.support.keys import Keys
from tests.support.programs import only_root

SourceOf = Callable[..., Source]

AUTUMN = 1_760_000_000
"""9 October 2025."""


@pytest.fixture
def keys(tmp_path: Path) -> Iterator[Keys]:
    """Keys, and the files that list which of them count."""
    made = Keys(tmp_path / "keys")
    yield made
    made.stop()


@pytest.fixture
def verified(opener: Opener, repo: GitRepo, keys: Keys) -> SourceOf:
    """Opens the repository as a source whose revisions have to be signed with ssh."""

    def opened(signed: Any = "commit", **settings: Any) -> Source:
        verify = VerifySettings(signed, keys.signers, keys.revoked)
        return opener(repo.path, **{"verify": verify, **settings})

    return opened


@pytest.fixture
def by_gpg(opener: Opener, repo: GitRepo, keys: Keys) -> SourceOf:
    """The same, with OpenPGP."""
    return lambda **settings: opener(repo.path, verify=VerifySettings(gpg_keyring=keys.keyring), **settings)


def refusal(source: Source, expression: str = "") -> str:
    with pytest.raises(SourceUnverified) as caught:
        source.revision(expression)
    return str(caught.value)


def test_a_commit_of_an_allowed_signer_is_taken(repo: GitRepo, keys: Keys, verified: SourceOf) -> None:
    keys.ssh("ada")
    commit = keys.commit(repo, "a.yaml", "a", "ada")
    assert verified().revision().commit == commit


def test_an_unsigned_commit_is_refused(repo: GitRepo, keys: Keys, verified: SourceOf) -> None:
    keys.ssh("ada")
    source = verified()
    assert refusal(source).endswith("is not accepted: it is not signed; nothing of it is read")
    good = keys.commit(repo, "a.yaml", "a", "ada")
    assert source.revision().commit == good
    bad = keys.commit(repo, "a.yaml", "b")
    assert f"commit {bad[:12]}" in refusal(source)


def test_an_unsigned_commit_is_not_searched(repo: GitRepo, verified: SourceOf) -> None:
    repo.commit({"b.txt": ""}, whole=True)
    assert "not signed" in refusal(verified(path="nowhere"))


def test_a_key_that_is_not_allowed_is_refused(repo: GitRepo, keys: Keys, verified: SourceOf) -> None:
    keys.ssh("ada")
    keys.ssh("eve", allowed=False)
    keys.commit(repo, "a.yaml", "a", "eve")
    assert "no allowed signer has such a key (SHA256:" in refusal(verified())


def test_a_key_for_another_purpose_is_refused(repo: GitRepo, keys: Keys, verified: SourceOf) -> None:
    keys.ssh("ada", 'namespaces="file"')
    keys.commit(repo, "a.yaml", "a", "ada")
    assert "the key is allowed for other purposes alone" in refusal(verified())


def test_a_key_counts_between_its_two_dates(repo: GitRepo, keys: Keys, verified: SourceOf) -> None:
    keys.ssh("ada", 'valid-after="20251001Z",valid-before="20251101Z"')
    month = 30 * 86_400
    keys.commit(repo, "a.yaml", "a", "ada", time=AUTUMN - month)
    assert "the key was not yet valid when it was made" in refusal(verified())
    commit = keys.commit(repo, "a.yaml", "b", "ada", time=AUTUMN)
    assert verified().revision().commit == commit
    keys.commit(repo, "a.yaml", "c", "ada", time=AUTUMN + month)
    assert "the key was no longer valid when it was made" in refusal(verified())


def test_a_revoked_key_is_refused_for_earlier_commits_too(repo: GitRepo, keys: Keys, verified: SourceOf) -> None:
    public = keys.ssh("ada")
    commit = keys.commit(repo, "a.yaml", "a", "ada", time=AUTUMN)
    source = verified()
    assert source.revision().commit == commit
    keys.revoked.write_text(public)
    assert "revokedKeys rules its key out (SHA256:" in refusal(source)
    keys.revoked.write_text("")
    assert source.revision().commit == commit


def test_keys_are_rotated_without_a_gap(repo: GitRepo, keys: Keys, verified: SourceOf) -> None:
    keys.ssh("old")
    source = verified()
    keys.commit(repo, "a.yaml", "a", "old")
    source.revision()
    keys.ssh("new")
    source.revision()
    commit = keys.commit(repo, "a.yaml", "b", "new")
    assert source.revision().commit == commit
    keys.signers.write_text(keys.signers.read_text().partition("\n")[2])
    assert source.revision().commit == commit


def test_a_missing_file_of_keys_trusts_no_key(repo: GitRepo, keys: Keys, verified: SourceOf) -> None:
    keys.ssh("ada")
    keys.commit(repo, "a.yaml", "a", "ada")
    source = verified()
    source.revision()
    keys.revoked.unlink()
    assert "revoked keys cannot be read: No such file" in refusal(source)
    keys.revoked.write_text("no key at all\n")
    assert "is not accepted" in refusal(source)


def test_a_signature_that_was_moved_to_other_content_is_refused(repo: GitRepo, keys: Keys, verified: SourceOf) -> None:
    keys.ssh("ada")
    signed = keys.commit(repo, "a.yaml", "a", "ada")
    repo.commit({"a.yaml": "evil"}, branch="work")
    raw = repo.git("cat-file", "commit", signed)
    forged = raw.replace(repo.git("rev-parse", f"{signed}^{{tree}}"), repo.git("rev-parse", "work^{tree}"))
    (repo.path / "forged").write_text(f"{forged}\n")
    repo.git("update-ref", "refs/heads/main", repo.git("hash-object", "-t", "commit", "-w", "forged"))
    assert "does not match the content" in refusal(verified())


def test_the_repository_cannot_influence_its_own_verification(
    tmp_path: Path, repo: GitRepo, keys: Keys, verified: SourceOf
) -> None:
    keys.ssh("ada")
    good = keys.commit(repo, "a.yaml", "a", "ada")
    bad = keys.commit(repo, "a.yaml", "b")
    program, ran = tmp_path / "yes", tmp_path / "ran"
    program.write_text(f"#!/bin/sh\ntouch {ran}\nexit 0\n")
    program.chmod(0o755)
    for name in ("gpg.program", "gpg.ssh.program", "gpg.openpgp.program", "core.pager", "core.fsmonitor"):
        repo.git("config", name, str(program))
    repo.git("config", "gpg.ssh.allowedSignersFile", str(keys.signers))
    repo.git("replace", bad, good)
    assert "not signed" in refusal(verified())
    assert not ran.exists()


@only_root("only root can give a repository away")
def test_a_repository_of_another_user_is_verified_too(repo: GitRepo, keys: Keys, verified: SourceOf) -> None:
    keys.ssh("ada")
    commit = keys.commit(repo, "a.yaml", "a", "ada")
    for folder, _, files in os.walk(repo.path):
        for name in (".", *files):
            os.chown(Path(folder, name), 12345, 12345)
    assert verified().revision().commit == commit


def test_every_commit_since_the_last_has_to_be_signed(repo: GitRepo, keys: Keys, verified: SourceOf) -> None:
    keys.ssh("ada")
    source = verified("history")
    first = keys.commit(repo, "a.yaml", "a", "ada")
    keys.commit(repo, "a.yaml", "b", "ada")
    third = keys.commit(repo, "a.yaml", "c", "ada")
    source.repository.check_signed(third, first)
    source.repository.check_signed(third, "")
    slip = keys.commit(repo, "a.yaml", "d")
    last = keys.commit(repo, "a.yaml", "e", "ada")
    for _ in range(2):
        assert source.revision().commit == last
        with pytest.raises(SourceUnverified, match=f"commit {slip[:12]} is not accepted: it is not signed"):
            source.repository.check_signed(last, third)
    source.repository.check_signed(last, slip)
    verified().repository.check_signed(last, third)


@pytest.mark.parametrize("file", ["info/grafts", "shallow"])
def test_a_file_of_the_repository_hides_no_unsigned_commit(
    repo: GitRepo, keys: Keys, verified: SourceOf, file: str
) -> None:
    keys.ssh("ada")
    base = keys.commit(repo, "a.yaml", "a", "ada")
    slip = keys.commit(repo, "a.yaml", "b")
    top = keys.commit(repo, "a.yaml", "c", "ada")
    (repo.path / "info").mkdir(exist_ok=True)
    (repo.path / file).write_text(f"{top} {base}\n" if file == "info/grafts" else f"{top}\n")
    with pytest.raises(SourceUnverified, match=slip[:12]):
        verified("history").repository.check_signed(top, base)
    (repo.path / "objects" / slip[:2] / slip[2:]).unlink()
    with pytest.raises(SourceError, match="missing or damaged"):
        verified("history").repository.check_signed(top, base)


def test_a_tag_has_to_be_signed_under_its_own_name(repo: GitRepo, keys: Keys, verified: SourceOf) -> None:
    keys.ssh("ada")
    keys.tag(repo, "v1", "ada")
    commit = repo.git("rev-parse", "main")
    source = verified("tag", tag="v1")
    assert source.revision().commit == commit
    assert source.revision(commit).commit == commit, "a commit that the tag stands for"
    keys.tag(repo, "v2")
    assert "it is not signed" in refusal(verified("tag", tag="v2"))
    repo.git("update-ref", "refs/tags/v2", repo.git("rev-parse", "refs/tags/v1"))
    assert "the tag was created under another name" in refusal(verified("tag", tag="v2"))
    other = repo.commit({"b.yaml": ""})
    repo.git("update-ref", "refs/tags/v1", other)
    assert "no annotated tag points to it" in refusal(verified("tag", tag="v1"))


@pytest.mark.parametrize("word", ["v1", "tags/v1", "refs/tags/v1", "v1^{}", "v1^0", "v1~0"])
def test_an_old_release_cannot_be_shown_under_the_name_of_another(
    repo: GitRepo, keys: Keys, verified: SourceOf, word: str
) -> None:
    keys.ssh("ada")
    keys.tag(repo, "v0", "ada")
    assert verified("tag", tag="v0").revision("v0").commit == repo.git("rev-parse", "main")
    repo.git("update-ref", "refs/tags/v1", repo.git("rev-parse", "refs/tags/v0"))
    assert "the tag was created under another name" in refusal(verified("tag", tag="v0"), word)
    repo.git("update-ref", "-d", "refs/tags/v0")
    message = refusal(verified("tag", tag="v1"), repo.git("rev-parse", "main"))
    assert "no annotated tag points to it" in message


def test_a_source_at_a_tag_can_ask_for_its_commit_to_be_signed(repo: GitRepo, keys: Keys, verified: SourceOf) -> None:
    keys.ssh("ada")
    keys.tag(repo, "v1", "ada")
    assert "it is not signed" in refusal(verified("commit", tag="v1"))
    commit = keys.commit(repo, "a.yaml", "a", "ada")
    keys.tag(repo, "v1")
    assert verified("commit", tag="v1").revision().commit == commit


def test_signed_tags_are_for_a_source_that_stays_at_one(verified: SourceOf) -> None:
    with pytest.raises(UsageError, match="set its tag"):
        verified("tag", branch="main")


def test_openpgp_keys_count_as_long_as_they_are_good(repo: GitRepo, keys: Keys, by_gpg: SourceOf) -> None:
    ada = keys.gpg("ada")
    keys.gpg("bob")
    keys.export("ada")
    commit = keys.commit(repo, "a.yaml", "a", "ada")
    source = by_gpg()
    assert source.revision().commit == commit
    keys.commit(repo, "a.yaml", "b", "bob")
    assert "the keyring has no such key (" in refusal(source)
    keys.export("ada", "bob")
    source.revision()
    keys.commit(repo, "a.yaml", "c", "ada")
    source.revision()
    keys.revoke(ada)
    keys.export("ada", "bob")
    assert f"the key is revoked ({ada[-16:]})" in refusal(source)


def test_an_openpgp_key_that_has_expired_counts_for_nothing(repo: GitRepo, keys: Keys, by_gpg: SourceOf) -> None:
    keys.gpg("ada", expires="seconds=2")
    keys.export("ada")
    keys.commit(repo, "a.yaml", "a", "ada")
    source = by_gpg()
    until = os.times().elapsed + 10
    message = ""
    while not message and os.times().elapsed < until:
        message = _refusal(by_gpg())
    assert "the key has expired" in message
    assert "the key has expired" in refusal(source)


def _refusal(source: Source) -> str:
    try:
        source.revision()
    except SourceUnverified as refused:
        return str(refused)
    return ""


def test_each_kind_of_signature_needs_its_own_file(
    repo: GitRepo, keys: Keys, verified: SourceOf, by_gpg: SourceOf
) -> None:
    keys.ssh("ada")
    keys.gpg("bob")
    keys.export("bob")
    keys.commit(repo, "a.yaml", "a", "ada")
    assert "signed with ssh, and the settings name no allowedSigners" in refusal(by_gpg())
    keys.commit(repo, "a.yaml", "b", "bob")
    assert "signed with OpenPGP, and the settings name no gpgKeyring" in refusal(verified())


def test_a_verdict_is_asked_for_once(
    repo: GitRepo, keys: Keys, verified: SourceOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys.ssh("ada")
    good = keys.commit(repo, "a.yaml", "a", "ada")
    source = verified()
    source.revision()
    bad = repo.commit({"a.yaml": "b"})
    refusal(source)
    monkeypatch.setenv("PATH", "/nonexistent")
    assert "not signed" in refusal(source)
    repo.git("update-ref", "refs/heads/main", good)
    assert source.revision().commit == good
    assert "not signed" in refusal(source, bad)
    keys.signers.write_text(f"{keys.signers.read_text()}\n")
    assert "it cannot be checked: No such file" in refusal(source)
