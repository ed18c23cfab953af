"""Logins of people at a real provider: with a browser and a command, with a device, and what ends a session."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest

from reconciler.api.oidc.device import MOST_OF_ADDRESS
from reconciler.api.oidc.login import LoginIdentity, PeopleLogin, challenge_of, client_auth, new_request
from reconciler.api.oidc.provider import BASIC, POST
from reconciler.settings import OidcSettings
from tests.api.browser import Browser
from tests.api.conftest import FILES
from tests.support.api import ORG, ApiSandbox, api_sandbox
from tests.support.oidc import PeopleProvider, people_provider

SECRET = "client-secret-hunter2"
WEB = f"{ORG}/gvc/shop/workload/web"
API = "http://127.0.0.1:8080"
COMMAND = "http://127.0.0.1:45123/done"
ORG_MANIFEST = """kind: org
name: acme
spec: {sessionTimeoutSeconds: 3600, authConfig: {domainAutoMembers: [members.example.com]}}
"""
QUERY = """kind: group
name: everybody-at-members
memberQuery: {kind: user, spec: {terms: [{property: email, op: "~", value: "*@members.example.com"}]}}
---
kind: policy
name: members-view
targetKind: secret
target: all
bindings: [{permissions: [view], principalLinks: [//group/everybody-at-members]}]
"""


@pytest.fixture(scope="module")
def provider() -> Iterator[PeopleProvider]:
    """A provider with people of all sorts."""
    with people_provider() as people:
        people.add_person("ann", email="Ann@example.com", email_verified=True)
        people.add_person("kim", email="kim@example.com", groups=["ops", "others"])
        people.add_person("max", email="max@members.example.com")
        people.add_person("eve", email="eve@evil.example.com")
        people.add_person("fay", email="bob@example.com", email_verified=False)
        people.add_person("odd", email="no name/../x@example.com", groups=["ops"])
        yield people


@pytest.fixture(scope="module")
def sandbox(provider: PeopleProvider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiSandbox]:
    """A sandbox whose people log in at the provider."""
    path = tmp_path_factory.mktemp("login")
    (path / "oidc-secret").write_text(f"{SECRET}\n")
    oidc = {
        "issuer": provider.issuer,
        "clientId": "reconciler",
        "clientSecretFile": str(path / "oidc-secret"),
        "groups": {"ops": "superusers"},
    }
    files = {**FILES, "org.yaml": ORG_MANIFEST, "members.yaml": QUERY}
    with api_sandbox(path / "site", files, api={"address": "127.0.0.1:8080", "oidc": oidc}) as made:
        made.clock.jump(time.time() - made.clock.now())  # the provider has the time of this host
        yield made


class Command:
    """A command that waits for its browser at a loopback port."""

    def __init__(self, sandbox: ApiSandbox, provider: PeopleProvider) -> None:
        self.sandbox = sandbox
        self.provider = provider
        self.verifier = secrets.token_urlsafe(32)
        self.cookie = ""

    def begin(self, path: str = "/login", **query: str) -> httpx2.Response:
        """What the browser gets first."""
        usual = {
            "redirect_uri": COMMAND,
            "code_challenge": challenge_of(self.verifier),
            "state": "mine",
            "code_challenge_method": "S256",
        }
        answer = self.sandbox.client(None).request("GET", path, params={**usual, **query})
        self.cookie = answer.headers.get("set-cookie", "").partition(";")[0]
        return answer

    def finish(self, callback: str, **headers: str) -> httpx2.Response:
        """What the browser gets when the provider returned it to ``callback``."""
        assert callback.startswith(f"{API}/login/callback?"), callback
        return self.sandbox.client(None).request(
            "GET", callback[len(API) :], headers={"cookie": self.cookie, **headers}
        )

    def log_in(self, person: str) -> httpx2.Response:
        """Where the browser ends."""
        return self.finish(self.provider.log_in(self.begin().headers["location"], person))

    def token(self, **fields: str) -> httpx2.Response:
        """The answer to a request for tokens."""
        return self.sandbox.client(None).request("POST", "/login/token", data=fields)

    def exchange(self, code: str, **changed: str) -> httpx2.Response:
        """The answer to a request with ``code``."""
        usual = {"grant_type": "authorization_code", "redirect_uri": COMMAND, "code_verifier": self.verifier}
        return self.token(**{**usual, "code": code, **changed})


@pytest.fixture
def command(sandbox: ApiSandbox, provider: PeopleProvider) -> Command:
    """A command of its own, and no count of refused credentials."""
    sandbox.clock.suspend(120.0)
    _, key = sandbox.api.store.add_key("ci", "", "test", None)
    assert get(sandbox, key, "/whoami").status_code == 200
    sandbox.clock.jump(time.time() - sandbox.clock.now())
    return Command(sandbox, provider)


def code_of(answer: httpx2.Response) -> str:
    """The code that the command got."""
    place = answer.headers["location"]
    assert place.startswith(f"{COMMAND}?"), place
    found = parse_qs(urlsplit(place).query)
    assert found["state"] == ["mine"]
    return found["code"][0]


def session(command: Command, person: str) -> dict[str, Any]:
    """The tokens of ``person``."""
    answer = command.exchange(code_of(command.log_in(person)))
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def get(sandbox: ApiSandbox, token: str, path: str = WEB, method: str = "GET", **more: Any) -> httpx2.Response:
    """The answer to a request with ``token`` over TCP."""
    return sandbox.client(None).request(method, path, headers={"Authorization": f"Bearer {token}"}, **more)


def test_a_person_logs_in_and_is_the_user_whom_policies_name(command: Command, sandbox: ApiSandbox) -> None:
    tokens = session(command, "ann")
    assert (tokens["principal"], tokens["token_type"], tokens["expires_in"]) == ("user/ann@example.com", "Bearer", 900)
    assert get(sandbox, tokens["access_token"], "/whoami").json() == {
        "principal": "user/ann@example.com",
        "groups": ["group/web"],
        "org": "acme",
    }
    assert get(sandbox, tokens["access_token"]).status_code == 200
    assert get(sandbox, tokens["access_token"], f"{ORG}/secret/db").status_code == 403
    entries = sandbox.client().get(f"{ORG}/-audit")["items"]
    found = [each for each in entries if each["principal"] == tokens["principal"]]
    assert [(each["target"], each["outcome"]) for each in found][:2] == [
        ("/login/callback", 302),
        ("/login/token", 200),
    ]
    assert not any(text in str(entries) for text in (tokens["access_token"], tokens["refresh_token"], SECRET))


def test_groups_of_the_provider_are_those_that_the_settings_map(command: Command, sandbox: ApiSandbox) -> None:
    made = session(command, "kim")
    assert get(sandbox, made["access_token"], "/whoami").json()["groups"] == ["group/superusers"]
    assert get(sandbox, made["access_token"], f"{ORG}/secret/db").status_code == 200


def test_a_domain_of_the_org_makes_members_whom_queries_find(command: Command, sandbox: ApiSandbox) -> None:
    made = session(command, "max")
    assert get(sandbox, made["access_token"], "/whoami").json()["groups"] == ["group/everybody-at-members"]
    assert get(sandbox, made["access_token"], f"{ORG}/secret/db").status_code == 200
    document = sandbox.client().get(f"{ORG}/user/max@members.example.com")
    assert (document["kind"], document["email"]) == ("user", "max@members.example.com")
    assert document["status"]["lastLogin"]
    names = [each["name"] for each in sandbox.client().get(f"{ORG}/user?limit=2")["items"]]
    assert names == ["ann@example.com", "bob@example.com"]
    assert "max@members.example.com" in [each["name"] for each in sandbox.client().get(f"{ORG}/user")["items"]]


@pytest.mark.parametrize(
    ("person", "words"),
    [
        ("eve", "no member of acme; ask for an invitation"),
        ("fay", "has not verified the address bob@example.com"),
        ("odd", "cannot be the name of a user"),
    ],
)
def test_others_are_refused(person: str, words: str, command: Command, sandbox: ApiSandbox) -> None:
    place = command.log_in(person).headers["location"]
    found = parse_qs(urlsplit(place).query)
    assert (found["error"], found["state"]) == (["access_denied"], ["mine"])
    assert words in found["error_description"][0]
    last = sandbox.client().get(f"{ORG}/-audit")["items"][-1]
    assert (last["target"], last["outcome"]) == ("/login/callback", 403)


def test_an_invited_person_may_log_in_and_a_removed_one_not(command: Command, sandbox: ApiSandbox) -> None:
    invitation = f"{ORG}/user/Eve@evil.example.com/-invite"
    assert sandbox.client().request("POST", invitation).status_code == 201
    token = session(command, "eve")["access_token"]
    assert get(sandbox, token, "/whoami").status_code == 200
    acting = sandbox.client().request("POST", f"{ORG}/user/eve@evil.example.com/-impersonate").json()["token"]
    assert get(sandbox, acting, "/whoami").status_code == 200
    assert get(sandbox, token, invitation, "POST").status_code == 403
    path, removed = f"{ORG}/user/eve@evil.example.com", {"principal": "user/eve@evil.example.com"}
    previewed = sandbox.client().request("DELETE", f"{path}?dryRun=true")
    assert (previewed.status_code, previewed.json()) == (200, removed)
    deleted = sandbox.client().request("DELETE", path)
    assert (deleted.status_code, deleted.json()) == (202, removed)
    answer = get(sandbox, token)
    assert (answer.status_code, answer.json()["message"]) == (401, "the credential is unknown, expired or revoked")
    assert get(sandbox, acting, "/whoami").status_code == 401
    assert sandbox.client().request("GET", path).status_code == 404
    assert "error" in command.log_in("eve").headers["location"]


@pytest.mark.parametrize("name", ["notanaddress", "0", "@example.com", "ann@", "a b@example.com"])
def test_an_invitation_is_for_an_address(name: str, sandbox: ApiSandbox) -> None:
    answer = sandbox.client().request("POST", f"{ORG}/user/{name}/-invite")
    assert (answer.status_code, "is no e-mail address such as ann@example.com" in answer.text) == (400, True)
    assert sandbox.client().request("GET", f"{ORG}/user/{name}").status_code == 404


@pytest.mark.parametrize("body", [{"role": "admin"}, [], 1])
def test_an_invitation_takes_no_body(body: Any, sandbox: ApiSandbox) -> None:
    for verb in ("-invite", "-impersonate"):
        assert sandbox.client().request("POST", f"{ORG}/user/ann@example.com/{verb}", json=body).status_code == 400
        assert sandbox.client().request("POST", f"{ORG}/user/ann@example.com/{verb}", json={}).status_code == 201


def test_an_address_stays_that_of_one_account(command: Command, provider: PeopleProvider, sandbox: ApiSandbox) -> None:
    session(command, "max")
    provider.add_person("max-2", email="max@members.example.com")
    assert "another+account" in command.log_in("max-2").headers["location"]
    assert sandbox.client().request("DELETE", f"{ORG}/user/max@members.example.com").status_code == 202
    session(command, "max-2")
    assert sandbox.client().request("DELETE", f"{ORG}/user/max@members.example.com").status_code == 202


def test_a_superuser_may_act_as_another_person(command: Command, sandbox: ApiSandbox) -> None:
    made = session(command, "ann")
    path = f"{ORG}/user/ann@example.com/-impersonate"
    assert get(sandbox, made["access_token"], path, "POST").status_code == 403
    token = sandbox.client().request("POST", path).json()["token"]
    assert get(sandbox, token, "/whoami").json()["groups"] == ["group/web"]
    assert get(sandbox, token, path, "POST").status_code == 403
    last = sandbox.client().get(f"{ORG}/-audit")["items"][-1]
    assert (last["principal"], last["credential"]) == ("user/ann@example.com", "impersonated by user/root")


def test_a_code_works_once_for_its_own_command(command: Command) -> None:
    code = code_of(command.log_in("ann"))
    stolen = command.exchange(code, code_verifier=secrets.token_urlsafe(32))
    assert (stolen.status_code, stolen.json()["error"], stolen.json()["code"]) == (400, "invalid_grant", "BadRequest")
    assert command.exchange(code).status_code == 400, "a failed attempt ends it"
    code = code_of(command.log_in("ann"))
    assert command.exchange(code, redirect_uri="http://127.0.0.1:1/done").status_code == 400
    code = code_of(command.log_in("ann"))
    assert command.exchange(code).status_code == 200
    assert command.exchange(code).status_code == 400
    command.sandbox.clock.suspend(60.0)
    code = code_of(command.log_in("ann"))
    command.sandbox.clock.suspend(60.0)
    assert command.exchange(code).status_code == 400


@pytest.mark.parametrize(
    "uri",
    [
        "https://evil.example.com/",
        "http://127.0.0.1.evil.example.com:1/",
        "http://evil@127.0.0.1@evil.example.com:1/",
        "http://127.0.0.1/",
        "http://[::1:8/",
        "http://127.0.0.1:99999/",
        "http://127.0.0.1:1/#x",
        "javascript:alert(1)",
        "http://127.0.0.1:1/\r\nX: y",
        "//127.0.0.1:1/",
        "",
    ],
)
def test_a_login_returns_to_the_same_machine_only(uri: str, command: Command) -> None:
    answer = command.begin(redirect_uri=uri)
    assert answer.status_code == 400
    assert answer.json()["message"].startswith("redirect_uri is an address of the command")


def test_a_login_needs_a_code_challenge(command: Command) -> None:
    assert command.begin(code_challenge_method="plain").status_code == 400
    assert command.begin(code_challenge="short").status_code == 400


def test_an_answer_belongs_to_the_browser_that_began(command: Command, provider: PeopleProvider) -> None:
    began = command.begin()
    sent = parse_qs(urlsplit(began.headers["location"]).query)
    assert sent["code_challenge_method"] == ["S256"]
    assert {"state", "nonce", "code_challenge"} <= sent.keys()
    assert {"HttpOnly", "Path=/login/callback", "SameSite=lax"} <= set(began.headers["set-cookie"].split("; "))
    callback = provider.log_in(began.headers["location"], "ann")
    assert command.finish(callback, cookie="").status_code == 400
    assert command.finish(callback, cookie="reconciler-login=forged").status_code == 400
    assert command.finish(callback.replace("state=", "state=x")).status_code == 400
    other = Command(command.sandbox, provider)
    other.begin()
    assert command.finish(callback, cookie=other.cookie).status_code == 400
    command.sandbox.clock.jump(601.0)
    assert command.finish(callback).status_code == 400


def test_a_login_that_the_provider_refuses_is_refused(command: Command, provider: PeopleProvider) -> None:
    url = command.begin().headers["location"]
    place = provider.log_in(url, "ann", action="deny")
    refused = command.finish(f"{API}/login/callback?{urlsplit(place).query}&state={parse_qs(url)['state'][0]}")
    assert "access_denied" in refused.headers["location"]


def test_a_login_that_is_denied_without_a_state_ends_the_waiting_command(
    command: Command, provider: PeopleProvider
) -> None:
    url = command.begin().headers["location"]
    refused = command.finish(provider.log_in(url, "ann", action="deny"))
    assert "access_denied" in refused.headers["location"]
    # Who logs in needs the state, and another browser ends nothing.
    place = provider.log_in(command.begin().headers["location"], "ann").partition("&state")[0]
    assert command.finish(place).status_code == 400
    command.cookie = ""
    assert command.finish(f"{API}/login/callback?error=access_denied").status_code == 400


def test_a_denial_at_the_provider_ends_the_login_of_a_machine(
    command: Command, provider: PeopleProvider, sandbox: ApiSandbox
) -> None:
    for person, action, words in (("ann", "deny", "refuses the login"), ("eve", "", "is no member of acme")):
        codes = sandbox.client(None).request("POST", "/login/device").json()
        answer = sandbox.client(None).request("GET", "/login/device", params={"user_code": codes["user_code"]})
        command.cookie = answer.headers["set-cookie"].partition(";")[0]
        page = command.finish(
            provider.log_in(answer.headers["location"], person, **({"action": action} if action else {}))
        )
        assert (page.status_code, page.headers["content-type"].partition(";")[0]) == (403, "text/html")
        assert "The machine is not logged in" in page.text
        assert words in page.text
        ask = {"grant_type": "urn:ietf:params:oauth:grant-type:device_code", "device_code": codes["device_code"]}
        assert command.token(**ask).json()["error"] == "access_denied"


def test_a_session_is_refreshed_and_a_stolen_token_ends_it(command: Command, sandbox: ApiSandbox) -> None:
    first = session(command, "ann")
    sandbox.clock.jump(901.0)
    assert get(sandbox, first["access_token"]).status_code == 401
    second = command.token(grant_type="refresh_token", refresh_token=first["refresh_token"]).json()
    assert get(sandbox, second["access_token"]).status_code == 200
    # A second command of the same person refreshes at the same time: it fails, and nothing ends by it.
    again = command.token(grant_type="refresh_token", refresh_token=first["refresh_token"])
    assert (again.status_code, again.json()["error"]) == (400, "invalid_grant")
    assert get(sandbox, second["access_token"]).status_code == 200
    sandbox.clock.jump(31.0)
    assert command.token(grant_type="refresh_token", refresh_token=first["refresh_token"]).status_code == 400
    assert get(sandbox, second["access_token"]).status_code == 401
    assert command.token(grant_type="refresh_token", refresh_token=second["refresh_token"]).status_code == 400


def test_logging_out_ends_every_token_of_the_login(command: Command, sandbox: ApiSandbox) -> None:
    tokens, other = session(command, "ann"), session(command, "ann")
    assert get(sandbox, tokens["access_token"], "/login", "DELETE").status_code == 204
    assert get(sandbox, tokens["access_token"]).status_code == 401
    assert command.token(grant_type="refresh_token", refresh_token=tokens["refresh_token"]).status_code == 400
    assert get(sandbox, other["access_token"]).status_code == 200


def test_an_idle_session_ends_after_the_timeout_of_the_org(command: Command, sandbox: ApiSandbox) -> None:
    tokens = session(command, "ann")
    for _ in range(3):
        sandbox.clock.jump(3000.0)
        tokens = command.token(grant_type="refresh_token", refresh_token=tokens["refresh_token"]).json()
        assert get(sandbox, tokens["access_token"]).status_code == 200
    sandbox.clock.jump(3700.0)
    assert command.token(grant_type="refresh_token", refresh_token=tokens["refresh_token"]).status_code == 400


def test_with_saml_only_neither_logins_nor_sessions_by_openid_connect_are_valid(
    command: Command, sandbox: ApiSandbox
) -> None:
    tokens = session(command, "ann")
    _, key = sandbox.api.store.add_key("ci", "", "test", None)
    for saml_only, status in (("true", 401), ("false", 200)):
        manifest = ORG_MANIFEST.replace("authConfig: {", f"authConfig: {{samlOnly: {saml_only}, ")
        sandbox.repo.commit({"org.yaml": manifest})
        assert sandbox.run("apply").returncode == 0
        assert get(sandbox, tokens["access_token"]).status_code == status
        assert get(sandbox, key, "/whoami").status_code == 200
        qs = parse_qs(urlsplit(command.log_in("ann").headers["location"]).query)
        assert ("code" in qs) is (status == 200), qs
        if status == 401:
            assert "by SAML only" in qs["error_description"][0]


def test_a_session_ends_a_day_after_the_login(command: Command, sandbox: ApiSandbox) -> None:
    tokens = session(command, "ann")
    for _ in range(28):
        sandbox.clock.jump(3000.0)
        tokens = command.token(grant_type="refresh_token", refresh_token=tokens["refresh_token"]).json()
    assert tokens["expires_in"] == 900
    sandbox.clock.jump(2300.0)
    tokens = command.token(grant_type="refresh_token", refresh_token=tokens["refresh_token"]).json()
    assert tokens["expires_in"] == 100
    sandbox.clock.jump(101.0)
    assert command.token(grant_type="refresh_token", refresh_token=tokens["refresh_token"]).status_code == 400


def test_a_machine_without_a_browser_logs_in(command: Command, sandbox: ApiSandbox) -> None:
    codes = sandbox.client(None).request("POST", "/login/device").json()
    assert codes["verification_uri"] == f"{API}/login/device"
    ask = {"grant_type": "urn:ietf:params:oauth:grant-type:device_code", "device_code": codes["device_code"]}
    before = len(sandbox.client().get(f"{ORG}/-audit")["items"])
    assert [command.token(**ask).json()["error"] for _ in range(2)] == ["authorization_pending", "slow_down"]
    assert len(sandbox.client().get(f"{ORG}/-audit")["items"]) == before, "waiting is no event"
    page = _device_page(command, "ann", codes["user_code"])
    assert codes["user_code"] in page
    sandbox.clock.suspend(5.0)
    form = {"identity": _hidden(page), "user_code": "BBBB-BBBB", "answer": "allow"}
    wrong = sandbox.client(None).request("POST", "/login/device/answer", data=form)
    assert (wrong.status_code, wrong.headers["content-type"].partition(";")[0]) == (404, "text/html")
    form["user_code"] = codes["user_code"].replace("-", " ").lower()
    allowed = sandbox.client(None).request("POST", "/login/device/answer", data=form)
    assert (allowed.status_code, "Logged in" in allowed.text) == (200, True)
    assert "script" not in allowed.headers["content-security-policy"]
    made = command.token(**ask).json()
    assert get(sandbox, made["access_token"], "/whoami").json()["principal"] == "user/ann@example.com"
    assert command.token(**ask).json()["error"] == "expired_token"
    assert sandbox.client(None).request("POST", "/login/device/answer", data=form).status_code == 404


def test_a_machine_is_refused_or_waits_too_long(command: Command, sandbox: ApiSandbox) -> None:
    ask = {"grant_type": "urn:ietf:params:oauth:grant-type:device_code"}
    codes = sandbox.client(None).request("POST", "/login/device").json()
    form = {"identity": _hidden(_device_page(command, "ann", "")), "user_code": codes["user_code"], "answer": "deny"}
    forged = {**form, "identity": "forged"}
    assert sandbox.client(None).request("POST", "/login/device/answer", data=forged).status_code == 401
    assert sandbox.client(None).request("POST", "/login/device/answer", data=form).status_code == 200
    assert command.token(**ask, device_code=codes["device_code"]).json()["error"] == "access_denied"
    late = sandbox.client(None).request("POST", "/login/device").json()
    sandbox.clock.suspend(600.0)
    assert command.token(**ask, device_code=late["device_code"]).json()["error"] == "expired_token"
    assert command.token(**ask, device_code="\N{SNOWMAN}").json()["error"] == "expired_token"


def test_one_address_does_not_keep_others_from_devices(command: Command, sandbox: ApiSandbox) -> None:
    sandbox.clock.suspend(600.0)
    for _ in range(MOST_OF_ADDRESS):
        assert sandbox.client(None).request("POST", "/login/device").status_code == 200
    assert sandbox.client(None).request("POST", "/login/device").status_code == 429
    sandbox.clock.suspend(600.0)
    assert sandbox.client(None).request("POST", "/login/device").status_code == 200


def _device_page(command: Command, person: str, user_code: str) -> str:
    answer = command.sandbox.client(None).request("GET", "/login/device", params={"user_code": user_code})
    command.cookie = answer.headers["set-cookie"].partition(";")[0]
    page = command.finish(command.provider.log_in(answer.headers["location"], person))
    assert (page.status_code, "You are Ann@example.com" in page.text) == (200, True)
    return page.text


def _hidden(page: str) -> str:
    return page.partition('name="identity" value="')[2].partition('"')[0]


def test_a_client_sends_its_secret_as_the_provider_wants(command: Command, provider: PeopleProvider) -> None:
    assert [client_auth(methods) for methods in ((BASIC, POST), (POST,), (), ("private_key_jwt",))] == [
        BASIC,
        POST,
        BASIC,
        BASIC,
    ]
    session(command, "ann")
    assert provider.clients[-1] == "header"
    public = PeopleLogin(OidcSettings(provider.issuer, "public"), f"{API}/login/callback", command.sandbox.clock)
    request = new_request()

    async def log_in() -> LoginIdentity:
        place = provider.log_in(await public.authorization_url(request), "kim")
        return await public.identify(request, parse_qs(urlsplit(place).query)["code"][0])

    assert asyncio.run(log_in()).email == "kim@example.com"
    assert provider.clients[-1] == "none"


def test_without_a_provider_people_cannot_log_in(tmp_path_factory: pytest.TempPathFactory) -> None:
    with api_sandbox(tmp_path_factory.mktemp("none"), FILES) as made:
        answer = made.client(None).request("POST", "/login/device")
        assert (answer.status_code, answer.json()["message"]) == (
            404,
            "people cannot log in here: the settings have no `api.oidc`",
        )


def test_a_person_logs_in_to_the_page_and_out(sandbox: ApiSandbox, provider: PeopleProvider) -> None:
    browser = Browser(sandbox)

    def follow(subject: str) -> httpx2.Response:
        """What the browser gets at the end of the login of ``subject``, after the way to the provider and back."""
        began = browser.request("GET", "/ui/login/provider?next=/ui/resources?kind=workload")
        callback = provider.log_in(began.headers["location"], subject)
        return browser.request("GET", callback[len(API) :])

    assert f"Log in at {provider.issuer}" in browser.get("/ui/login")
    refused = follow("eve")
    assert (refused.status_code, refused.headers["location"]) == (303, "/ui/login")
    assert "eve@evil.example.com" in browser.get("/ui/login")
    response = browser.request("GET", follow("kim").headers["location"])
    assert response.headers["location"] == "/ui/resources?kind=workload"
    shown = browser.get("/ui/resources?kind=workload")
    assert "user/kim@example.com" in shown
    assert "workload/shop/web" in shown
    former = dict(browser.cookies)
    assert browser.send(browser.form("/", "/ui/logout")).status_code == 303
    browser.cookies = former
    assert browser.request("GET", "/").headers["location"] == "/ui/login"


def test_a_session_of_the_page_ends_with_the_persons_login(sandbox: ApiSandbox, provider: PeopleProvider) -> None:
    browser = Browser(sandbox)
    began = browser.request("GET", "/ui/login/provider")
    callback = provider.log_in(began.headers["location"], "kim")
    assert browser.request("GET", browser.request("GET", callback[len(API) :]).headers["location"]).status_code == 303
    browser.get("/")
    sandbox.clock.block(3601)  # longer than people may be idle
    assert browser.request("GET", "/").headers["location"] == "/ui/login"
