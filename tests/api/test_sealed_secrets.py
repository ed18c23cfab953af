"""Secrets that are changed through the API are encrypted before anything is written, or refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pygit2
import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from reconciler.changes.edits import ResourceEdit, edit_files
from reconciler.changes.sealed import Sealing
from reconciler.documents.reader import parse_documents
from reconciler.model.key import Key, Kind
from reconciler.sops.creation_rules import Creation
from reconciler.sops.encrypt import EncryptionRules, decrypt_file, encrypt_secrets
from reconciler.sops.keys import Keyring
from tests.api.conftest import FILES
from tests.support.api import ORG, ApiSandbox, api_sandbox
from tests.support.sandbox import eventually
from tests.support.sops import MOMENT, fresh, needs_sops, sops

IDENTITY, RECIPIENT = fresh()
DB = f"{ORG}/secret/db"
PLAIN = """# of the shop
kind: secret
name: db
type: dictionary
data:
  user: planted-old-user  # for reports
  password: planted-old-password
tags: {tier: data}
"""
ACCESS = FILES["access.yaml"].split("---\nkind: secret")[0]  # type: ignore[union-attr,arg-type]
SEALED = encrypt_secrets(PLAIN.encode(), [RECIPIENT], EncryptionRules(), MOMENT).decode()
RULES = f"creation_rules: [{{path_regex: '^other/', age: age1x}}, {{age: {RECIPIENT}}}]\n"


def files(**more: Any) -> dict[str, Any]:
    """Files of a source whose only secret is encrypted."""
    return {**FILES, "access.yaml": ACCESS, "db.yaml": SEALED, ".sops.yaml": RULES} | more


def settings(path: Path, **more: Any) -> dict[str, Any]:
    """Settings with the identity, for which plain secrets are errors."""
    identity = path / "identity.txt"
    identity.write_text(IDENTITY)
    identity.chmod(0o600)
    return {"secrets": {"identity": str(identity), "policy": "encrypted-only"} | more}


@pytest.fixture(autouse=True)
def quiet(capfd: pytest.CaptureFixture[str]) -> Iterator[None]:
    """Nothing that is logged has a planted value."""
    yield
    assert "planted" not in "".join(capfd.readouterr())


@pytest.fixture
def sandbox(tmp_path: Path) -> Iterator[ApiSandbox]:
    """A sandbox with one encrypted secret."""
    with api_sandbox(tmp_path / "site", files(), **settings(tmp_path)) as made:
        yield made


def send(sandbox: ApiSandbox, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    """Status and body of a request, whose answer has no planted value."""
    answer = sandbox.client().request(method, path, json=body)
    assert "planted" not in answer.text
    return answer.status_code, answer.json()


def file(sandbox: ApiSandbox, path: str) -> str:
    """A file at the tip of the branch."""
    return sandbox.repo.git("show", f"main:{path}")


def revealed(sandbox: ApiSandbox, name: str) -> Any:
    """The data of a secret, once it is applied."""
    assert sandbox.run("apply").returncode == 0
    return sandbox.client().get(f"{ORG}/secret/{name}/-reveal")["data"]


def check_nothing_is_plain(sandbox: ApiSandbox) -> None:
    """No object of Git, no record, event, audit entry or remembered answer has a planted value."""
    git = pygit2.Repository(str(sandbox.repo.path))
    assert [str(each) for each in git if b"planted" in git[each].read_raw()] == []
    for path in ("secret/db/-eventlog", "-audit"):
        assert "planted" not in sandbox.client().request("GET", f"{ORG}/{path}").text
    for path in sandbox.state.rglob("*"):
        assert not path.is_file() or b"planted" not in path.read_bytes(), path


def test_a_new_secret_is_encrypted_for_the_recipients_of_the_creation_rule(sandbox: ApiSandbox) -> None:
    pem = "-----BEGIN planted-----\nabc: '#' \"x\"\n\n  indented\n-----END-----\n"
    content = {"key": pem, "number": "0123", "empty": "", "umlaut": "planted-ü\t#", "one": "planted: yes"}
    body = {"name": "new", "type": "dictionary", "data": content, "description": "For the shop"}
    code, answer = send(sandbox, "POST", f"{ORG}/secret?dryRun=true", body)
    assert (code, answer["change"]["diff"]) == (200, "")
    code, answer = send(sandbox, "POST", f"{ORG}/secret", body)
    assert (code, answer["change"]["files"]) == (201, ["secret/new.yaml"]), answer
    text = file(sandbox, "secret/new.yaml")
    assert "description: For the shop\n" in text
    assert yaml.safe_load(text)["sops"]["age"][0]["recipient"] == RECIPIENT
    assert revealed(sandbox, "new") == content
    check_nothing_is_plain(sandbox)


def test_a_patch_changes_one_encrypted_value(sandbox: ApiSandbox) -> None:
    code, answer = send(
        sandbox, "PATCH", DB, {"data": {"password": "planted-new", "more": "planted-more", "user": None}}
    )
    assert code == 200, answer
    assert revealed(sandbox, "db") == {"password": "planted-new", "more": "planted-more"}
    code, answer = send(sandbox, "PATCH", DB, {"data": {"more": "planted-else"}, "tags": {"tier": "db"}})
    assert code == 200, answer
    before, after = (sandbox.repo.git("show", f"main{at}:db.yaml").splitlines() for at in ("~1", ""))
    assert [line.split(":")[0].strip() for line in after if line not in before] == ["more", "tags", "mac"]
    assert after[0] == "# of the shop"
    assert send(sandbox, "PATCH", DB, {"data": {"more": "planted-else"}})[1]["change"] is None
    check_nothing_is_plain(sandbox)


def test_what_is_put_replaces_the_data_and_a_document_without_data_keeps_it(sandbox: ApiSandbox) -> None:
    document = sandbox.client().get(DB)
    document["tags"] = {"tier": "put"}
    assert send(sandbox, "PUT", DB, document)[0] == 200
    assert revealed(sandbox, "db") == {"user": "planted-old-user", "password": "planted-old-password"}
    assert send(sandbox, "PUT", DB, document | {"data": {"only": "planted-only"}})[0] == 200
    assert revealed(sandbox, "db") == {"only": "planted-only"}
    check_nothing_is_plain(sandbox)
    assert send(sandbox, "DELETE", DB)[0] == 202
    assert "db.yaml" not in sandbox.repo.git("ls-tree", "--name-only", "main").split()


@needs_sops
def test_sops_opens_what_the_api_wrote(sandbox: ApiSandbox, tmp_path: Path) -> None:
    assert send(sandbox, "PATCH", DB, {"data": {"password": "planted-new"}})[0] == 200
    (tmp_path / "db.yaml").write_text(file(sandbox, "db.yaml"))
    opened = sops(tmp_path, IDENTITY, "decrypt", "db.yaml")
    assert yaml.safe_load(opened.stdout)["data"] == {"user": "planted-old-user", "password": "planted-new"}


def test_a_secret_without_a_recipient_is_refused_and_leaves_no_trace(tmp_path: Path) -> None:
    body = {"name": "new", "type": "dictionary", "data": {"user": "planted-user", "key": "planted-key"}}
    partial = f"creation_rules: [{{encrypted_regex: '^user$', age: {RECIPIENT}}}]\n"
    for name, rules, words in (
        ("none", None, "add one to .sops.yaml in the repository"),
        ("other", "creation_rules: [{path_regex: '^other/', age: age1x}]\n", "add one to .sops.yaml"),
        ("wrong", "creation_rules: [{age: age1x}]\n", "secret/new cannot be encrypted: this is neither age1"),
        ("kms", "creation_rules: [{kms: arn}]\n", ".sops.yaml of the source main: its rule for this file names no age"),
        ("partial", partial, "leaves values as they are"),
    ):
        with api_sandbox(tmp_path / name, files(**{".sops.yaml": rules}), **settings(tmp_path)) as sandbox:
            code, answer = send(sandbox, "POST", f"{ORG}/secret", body)
            assert (code, words in answer["message"]) == (409, True), answer
            assert len(sandbox.repo.git("log", "--format=%h", "main").split()) == 1
            check_nothing_is_plain(sandbox)


def test_findings_about_an_encrypted_secret_have_no_value(sandbox: ApiSandbox) -> None:
    for body in ({"type": "nonsense"}, {"data": {"key": ["planted-list"]}}, {"data": "planted-text"}):
        code, answer = send(sandbox, "PATCH", DB, body)
        assert (code, answer["code"]) == (400, "BadRequest"), answer
    check_nothing_is_plain(sandbox)


def test_values_that_others_change_meanwhile_stay(sandbox: ApiSandbox) -> None:
    """And the same value by both is refused, without showing it."""
    from reconciler.changes import commits

    check = commits.SourceWriter.check
    user, password = (
        encrypt_secrets(PLAIN.replace(old, "planted-theirs").encode(), [RECIPIENT], EncryptionRules(), MOMENT).decode()
        for old in ("planted-old-user", "planted-old-password")
    )
    pushed = [user]

    def check_late(self: Any, commit: Any) -> Any:
        if pushed:
            sandbox.repo.commit({"db.yaml": pushed.pop(0)})
        return check(self, commit)

    commits.SourceWriter.check = check_late  # type: ignore[method-assign]
    try:
        code, answer = send(sandbox, "PATCH", DB, {"data": {"password": "planted-ours"}})
        assert code == 200, answer
        assert revealed(sandbox, "db") == {"user": "planted-theirs", "password": "planted-ours"}
        pushed.append(password)
        code, answer = send(sandbox, "PATCH", DB, {"data": {"password": "planted-again"}})
        assert (code, answer["details"]) == (409, {"yours": "", "theirs": ""})
    finally:
        commits.SourceWriter.check = check  # type: ignore[method-assign]


def test_a_rule_of_the_repository_counts_where_plain_secrets_are_accepted(tmp_path: Path) -> None:
    with api_sandbox(
        tmp_path / "site", files(**{"plain.yaml": PLAIN.replace("db", "plain")}), **settings(tmp_path, policy="any")
    ) as sandbox:
        body = {"name": "new", "type": "dictionary", "data": {"key": "planted-key"}}
        assert send(sandbox, "POST", f"{ORG}/secret", body)[0] == 201
        assert "ENC[AES256_GCM" in file(sandbox, "secret/new.yaml")
        assert send(sandbox, "PATCH", f"{ORG}/secret/plain", {"data": {"user": "planted-new"}})[0] == 200
        assert "  user: planted-new  # for reports" in file(sandbox, "plain.yaml")
        assert eventually(lambda: revealed(sandbox, "plain"))["user"] == "planted-new"


TEXT = st.text(st.characters(exclude_categories=("Cs", "Cc")), max_size=40) | st.text("ab \n\t#:-'\"\\{}[]&*!|>%@`")
CONTENT = st.dictionaries(
    st.text("abc_.-0", min_size=1, max_size=4), TEXT.map(lambda text: f"planted{text}"), min_size=1
)


@given(CONTENT, CONTENT)
@example({"a": "planted\n"}, {"a": "planted: [#"})
def test_any_text_is_encrypted_and_comes_back(content: dict[str, str], patch: dict[str, str]) -> None:
    key = Key(Kind.SECRET, "", "new")
    sealing = Sealing(Keyring((IDENTITY,)), "encrypted-only", lambda path: Creation((RECIPIENT,)), MOMENT)
    body = {"kind": "secret", "name": "new", "type": "dictionary"}
    text: str | None = None
    for edit in (
        ResourceEdit(key, "new.yaml", None, body | {"data": content}),
        ResourceEdit(key, "new.yaml", body, body | {"data": patch}, patches_data=True),
    ):
        text = edit_files([edit], {"new.yaml": text}.get, sealing).get("new.yaml", text)
        assert text is not None
        assert "planted" not in text
    assert text is not None
    [document] = parse_documents(decrypt_file(text.encode(), sealing.keyring).text).documents
    assert document.value["data"] == content | patch


def test_another_identity_counts_from_the_next_change_on(sandbox: ApiSandbox, tmp_path: Path) -> None:
    identity = tmp_path / "identity.txt"
    assert send(sandbox, "PATCH", DB, {"tags": {"tier": "one"}})[0] == 200
    identity.write_text(fresh()[0])
    code, answer = send(sandbox, "PATCH", DB, {"tags": {"tier": "two"}})
    assert (code, "this host cannot open it" in answer["message"]) == (409, True)
    identity.write_text(IDENTITY)
    assert send(sandbox, "PATCH", DB, {"tags": {"tier": "three"}})[0] == 200
    assert "tier: three" in sandbox.repo.git("show", "main:db.yaml")
