"""Credentials: which secret or file has the login for an image, and the message where none can be used."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from reconciler.engines.images.credentials import Keychain
from reconciler.engines.images.protocol import RegistryCredentials
from reconciler.engines.workload.image_reference import ImageError, ImageReference
from reconciler.errors import EngineError
from reconciler.model.key import Key, Kind
from reconciler.model.kinds.secret import SecretValue
from reconciler.reasons import Reason

APP = ImageReference("r.example:5000", "team/app", "1")
HUB = ImageReference("docker.io", "library/nginx", "1")
ECR = ImageReference("123456789012.dkr.ecr.eu-west-1.amazonaws.com", "app", "1")


def auth(login: str) -> dict[str, str]:
    return {"auth": base64.b64encode(login.encode()).decode()}


def docker(**entries: Any) -> SecretValue:
    return SecretValue("docker", json.dumps({"auths": entries}))


def found(
    image: ImageReference, secrets: Mapping[str, SecretValue], file: Path | None = None
) -> RegistryCredentials | None:
    def read(key: Key) -> SecretValue:
        if key.name not in secrets:
            raise EngineError(f"{key} is not applied", reason=Reason.SECRET_UNAVAILABLE)
        return secrets[key.name]

    return Keychain(read, file).find(image, [Key(Kind.SECRET, "", name) for name in secrets])


@pytest.fixture
def authfile(tmp_path: Path) -> Path:
    path = tmp_path / "auth.json"
    path.write_text(json.dumps({"auths": {"r.example:5000": auth("file:f"), "docker.io": auth("hub:h")}}))
    path.chmod(0o600)
    return path


@pytest.mark.parametrize(
    ("entries", "image", "user"),
    [
        ({"r.example:5000": auth("u:p")}, APP, "u"),
        ({"https://r.example:5000": auth("u:p")}, APP, "u"),
        ({"https://R.example:5000/v2/": auth("u:p")}, APP, "u"),
        ({"r.example": auth("u:p")}, APP, None),
        ({"example:5000": auth("u:p")}, APP, None),
        ({"r.example:5000/te": auth("u:p")}, APP, None),
        ({"r.example:5000/team/app/more": auth("u:p")}, APP, None),
        ({"r.example:5000": auth("u:p"), "r.example:5000/team": auth("t:p")}, APP, "t"),
        ({"r.example:5000/x": auth("x:p"), "r.example:5000/team/app": auth("t:p")}, APP, "t"),
        ({"https://index.docker.io/v1/": auth("u:p")}, HUB, "u"),
        ({"registry-1.docker.io": auth("u:p")}, HUB, "u"),
        ({"": auth("u:p"), "/": auth("u:p")}, HUB, None),
        ({"docker.io": {"username": "u", "password": "p"}}, HUB, "u"),
        ({}, APP, None),
    ],
)
def test_an_entry_is_for_a_registry_or_a_part_of_it(
    entries: dict[str, Any], image: ImageReference, user: str | None
) -> None:
    login = found(image, {"s": docker(**entries)})
    assert (login and login.username) == user


def test_a_password_may_contain_a_colon_and_an_identity_token_needs_none() -> None:
    assert found(APP, {"s": docker(**{"r.example:5000": auth("u:a:b")})}) == RegistryCredentials("u", "a:b")
    entry = {"auth": base64.b64encode(b"<token>:").decode(), "identitytoken": "secret"}
    login = found(APP, {"s": docker(**{"r.example:5000": entry})})
    assert login is not None
    assert login.identity_token == "secret"
    assert "secret" not in repr(login)


def test_the_first_secret_counts_and_then_the_file(authfile: Path) -> None:
    secrets = {"a": docker(**{"quay.io": auth("q:q")}), "b": docker(**{"r.example:5000": auth("b:b")})}
    more = secrets | {"c": docker(**{"r.example:5000": auth("c:c")})}
    assert found(APP, more, authfile) == RegistryCredentials("b", "b")
    assert found(HUB, more, authfile) == RegistryCredentials("hub", "h")
    assert found(ImageReference("other.example", "app", "1"), more, authfile) is None


def test_the_file_is_read_anew(authfile: Path) -> None:
    keychain = Keychain(lambda key: pytest.fail("no secret"), authfile)
    assert keychain.find(APP, []) == RegistryCredentials("file", "f")
    authfile.write_text(json.dumps({"auths": {"r.example:5000": auth("new:n")}}))
    assert keychain.find(APP, []) == RegistryCredentials("new", "n")


@pytest.mark.parametrize("host", ["gcr.io", "eu.gcr.io", "europe-docker.pkg.dev"])
def test_the_key_of_a_service_account_is_the_password_of_googles_registries(host: str) -> None:
    key = SecretValue("gcp", '{"type": "service_account"}')
    assert found(ImageReference(host, "p/app", "1"), {"g": key}) == RegistryCredentials(
        "_json_key", '{"type": "service_account"}'
    )
    assert found(APP, {"g": key}) is None
    assert found(ImageReference(f"{host}.evil.example", "p/app", "1"), {"g": key}) is None


def test_a_secret_that_needs_a_token_of_a_cloud_is_refused_with_the_way_out(authfile: Path) -> None:
    ecr = SecretValue("ecr", {"accessKey": "AKIA", "secretKey": "correct-horse", "repos": [APP.registry]})
    for image in (ECR, APP):
        with pytest.raises(
            ImageError, match=r"with secret/e: .*aws ecr get-login-password.*images\.credentials"
        ) as error:
            found(image, {"e": ecr})
        assert "correct-horse" not in str(error.value)
    assert found(HUB, {"e": ecr}) is None
    assert found(APP, {"e": ecr}, authfile) == RegistryCredentials("file", "f")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("no json correct-horse", "secret/s is not a file of credentials"),
        ('{"auths": ["correct-horse"]}', "secret/s is not a file of credentials"),
        ("[" * 200_000, "secret/s is not a file of credentials"),
        ('{"auths": {"r.example:5000": {"auth": "correct-horse"}}}', "has an `auth` that is not base64"),
        ('{"auths": {"r.example:5000": {"auth": "//79"}}}', "has an `auth` that is not base64"),
        ('{"auths": {"r.example:5000": {}}, "credsStore": "pass"}', "credential helpers are not used"),
        ('{"auths": {"r.example:5000": {"username": "correct-horse"}}}', "has no login"),
    ],
)
def test_a_secret_that_has_no_login_is_refused_without_its_content(content: str, words: str) -> None:
    with pytest.raises(ImageError) as error:
        found(APP, {"s": SecretValue("docker", content)})
    assert words in str(error.value)
    assert "correct" not in str(error.value)


def test_a_file_that_others_can_read_is_refused(authfile: Path) -> None:
    authfile.chmod(0o644)
    with pytest.raises(ImageError, match=r"images\.credentials. cannot be used: .* can be read or changed by others"):
        found(APP, {}, authfile)
    with pytest.raises(ImageError, match="cannot be read: No such file"):
        found(APP, {}, authfile.with_name("gone"))


def test_a_secret_that_cannot_be_read_is_an_error_and_no_pull_without_login() -> None:
    def read(key: Key) -> SecretValue:
        raise EngineError(f"{key} is not applied", reason=Reason.SECRET_UNAVAILABLE)

    with pytest.raises(EngineError, match="secret/s is not applied"):
        Keychain(read, None).find(APP, [Key(Kind.SECRET, "", "s")])
