"""Object stores: whose keys read them, and the configuration of rclone; without a running one."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from reconciler.engines.host.provisioning.stores import store_mounts
from reconciler.engines.workload.object_stores import CloudAccess, cloud_access, store_secrets, unmounted_stores
from reconciler.errors import EngineError
from reconciler.model.key import Key
from reconciler.model.kinds.workload import Specification
from reconciler.reasons import Reason
from reconciler.settings import CloudAccountSettings
from tests.engines.host.provisioning.kit import spec_of, vault

RECORDED = {
    "identity/shop/reader": {
        "kind": "identity",
        "name": "reader",
        "aws": {"cloudAccountLink": "/org/acme/cloudaccount/main", "roleName": "reader"},
        "gcp": {"cloudAccountLink": "/org/acme/cloudaccount/google", "serviceAccount": "a@b"},
        "azure": {"cloudAccountLink": "/org/acme/cloudaccount/blue", "roleAssignments": []},
    },
    "cloudaccount/main": {"kind": "cloudaccount", "name": "main", "provider": "aws", "data": {"roleArn": "arn:x"}},
    "cloudaccount/google": {"kind": "cloudaccount", "name": "google", "provider": "gcp", "data": {"projectId": "p"}},
    "cloudaccount/blue": {
        "kind": "cloudaccount",
        "name": "blue",
        "provider": "azure",
        "data": {"secretLink": "/org/acme/secret/principal"},
    },
}
ACCOUNTS = {
    "main": CloudAccountSettings("aws-keys", "https://s3.example.com", "eu-central-1"),
    "google": CloudAccountSettings("google-keys"),
}
SECRETS = {
    "aws-keys": {"type": "aws", "data": {"accessKey": "AK", "secretKey": "hunter2"}},
    "google-keys": {"type": "gcp", "data": '{"type": "service_account", "private_key": "hunter2"}'},
    "principal": {
        "type": "azure-sdk",
        "data": '{"tenantId": "t", "clientId": "c", "clientSecret": "hunter2", "subscriptionId": "s"}',
    },
}
URIS = ("s3://pictures", "gs://films", "azureblob://account/songs", "azurefs://account/share")


def read(key: Key) -> bytes | None:
    body = RECORDED.get(str(key))
    return msgspec.json.encode(body) if body is not None else None


def mounting(*uris: str, identity: str = "/org/acme/gvc/shop/identity/reader") -> Specification:
    volumes = [{"uri": uri, "path": f"/{uri.partition(':')[0]}"} for uri in uris]
    spec = spec_of({"name": "main", "image": "a:1", "volumes": volumes})
    return msgspec.structs.replace(spec, identity_link=identity)


def mounts(*uris: str, secrets: dict[str, Any] = SECRETS) -> Any:
    spec = mounting(*uris)
    access = cloud_access(spec, "shop", read, ACCOUNTS)
    return store_mounts(spec.containers[0], access, vault(secrets))


def test_the_keys_of_an_account_become_options_of_rclone() -> None:
    blob, google, s3 = mounts(*URIS)
    assert (s3.uri, s3.path, s3.place, s3.principal) == ("s3://pictures", "/s3", "pictures", "")
    assert s3.options == {
        "type": "s3",
        "provider": "Other",
        "env_auth": "false",
        "access_key_id": "AK",
        "secret_access_key": "hunter2",
        "endpoint": "https://s3.example.com",
        "region": "eu-central-1",
    }
    assert (google.place, google.options["type"]) == ("films", "google cloud storage")
    assert json.loads(google.options["service_account_credentials"])["private_key"] == "hunter2"
    assert (blob.place, blob.options) == ("songs", {"type": "azureblob", "account": "account"})
    assert json.loads(blob.principal) == {"appId": "c", "password": "hunter2", "tenant": "t"}
    assert "hunter2" not in repr((s3, google, blob))


def test_a_store_of_the_provider_has_its_own_endpoint() -> None:
    spec = mounting("s3://pictures")
    access = cloud_access(spec, "shop", read, {"main": CloudAccountSettings("aws-keys")})
    [s3] = store_mounts(spec.containers[0], access, vault(SECRETS))
    assert (s3.options["provider"], "endpoint" in s3.options, "region" in s3.options) == ("AWS", False, False)


def test_a_change_of_the_keys_is_a_change_of_what_replicas_depend_on() -> None:
    access = cloud_access(mounting(*URIS), "shop", read, ACCOUNTS)
    assert [key.name for key in store_secrets(access)] == ["aws-keys", "principal", "google-keys"]
    assert cloud_access(mounting(), "shop", read, ACCOUNTS) == {}


def test_what_has_no_keys_is_a_sentence_and_no_mount() -> None:
    spec = mounting("s3://pictures", "gs://films", "azurefs://account/share")
    access = cloud_access(spec, "shop", read, {"google": ACCOUNTS["google"]})
    assert access["aws"] == CloudAccess("main")
    [sentence] = unmounted_stores(spec, access)
    assert sentence == (
        "s3://pictures is not mounted at /s3: nothing names the keys of cloudaccount/main; "
        "set cloudAccounts.main.secret."
    )
    assert [each.uri for each in store_mounts(spec.containers[0], access, vault(SECRETS))] == ["gs://films"]
    strange = mounting("s3://pictures", identity="/org/acme/gvc/shop/identity/unknown")
    [sentence] = unmounted_stores(strange, cloud_access(strange, "shop", read, ACCOUNTS))
    assert sentence == "s3://pictures is not mounted at /s3: the identity has no access to a cloud account of aws."


@pytest.mark.parametrize(
    ("secret", "message"),
    [
        ({"type": "gcp", "data": "{}"}, "is of type gcp; s3://pictures needs keys of type aws"),
        ({"type": "aws", "data": {"accessKey": "AK", "secretKey": "a\nb"}}, "has no secretKey"),
        ({"type": "aws", "data": {"accessKey": "AK\nx", "secretKey": "hunter2"}}, "has no accessKey"),
    ],
)
def test_a_secret_without_fitting_keys_is_an_error(secret: dict[str, Any], message: str) -> None:
    with pytest.raises(EngineError, match=message) as raised:
        mounts("s3://pictures", secrets={**SECRETS, "aws-keys": secret})
    assert raised.value.reason is Reason.SECRET_UNUSABLE
    assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize("name", ["token_uri", "Token_URI"])
@pytest.mark.parametrize("uri", ["http://169.254.169.254/", "https://oauth2.googleapis.com@127.0.0.1/", "https://[", 5])
def test_a_key_of_google_leads_to_no_other_address(name: str, uri: object) -> None:
    secret = {"type": "gcp", "data": json.dumps({"type": "service_account", name: uri})}
    with pytest.raises(EngineError, match="has a token_uri that is no address of Google"):
        mounts("gs://films", secrets={**SECRETS, "google-keys": secret})


def test_a_key_of_google_has_only_what_a_login_needs() -> None:
    usual = {"type": "service_account", "private_key": "x", "token_uri": "https://oauth2.googleapis.com/token"}
    more = {"auth_uri": "http://127.0.0.1/", "credential_source": {"file": "/etc/shadow"}}
    secret = {"type": "gcp", "data": json.dumps(usual | more)}
    [google] = mounts("gs://films", secrets={**SECRETS, "google-keys": secret})
    assert json.loads(google.options["service_account_credentials"]) == usual


def test_an_sdk_secret_that_is_no_json_object_is_an_error() -> None:
    for data in ("no json", "[]"):
        with pytest.raises(EngineError, match="is no JSON object"):
            mounts("azureblob://account/songs", secrets={**SECRETS, "principal": {"type": "azure-sdk", "data": data}})
