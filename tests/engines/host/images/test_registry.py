"""The client of registries: what it asks for, how it logs in, and the words in which it fails."""

from __future__ import annotations

import asyncio
import datetime
import random
import ssl
from collections.abc import Callable, Coroutine
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from reconciler.engines.images.connection import RegistryConnection
from reconciler.engines.images.manifests import ImageManifest, Platform, check_platform, host_platform
from reconciler.engines.images.protocol import RegistryCredentials
from reconciler.engines.images.registry import Registry
from reconciler.engines.workload.image_reference import ImageError, ImageReference
from reconciler.reasons import Reason
from tests.support.clock import START, FakeClock
from tests.support.registry import FakeRegistry, RegistryRequest, Reply, index, manifest, refused

USER = RegistryCredentials("ann", "pass:word")
Story = Callable[[FakeRegistry, Registry, ImageReference], Coroutine[Any, Any, None]]


def played(story: Story, fake: FakeRegistry | None = None, seconds: float = 5.0, insecure: bool = True) -> None:
    """Play ``story`` with a registry that has the image team/app:1, and a client of it."""

    async def whole() -> None:
        async with fake or FakeRegistry() as registry:
            named = (registry.host,)
            client = Registry(RegistryConnection(named if insecure else (), FakeClock(), seconds, named=named))
            registry.push("team/app", "1", manifest())
            try:
                await story(registry, client, ImageReference(registry.host, "team/app", "1"))
            finally:
                await client.close()

    asyncio.run(whole())


async def refusal(
    client: Registry, image: ImageReference, login: RegistryCredentials | None = None, **more: bool
) -> ImageError:
    with pytest.raises(ImageError) as refused:
        await client.resolve(image, login, **more)
    assert str(refused.value).startswith(f"the image {image}: ")
    assert str(refused.value).isprintable()
    assert "pass:word" not in repr(refused.value)
    assert (refused.value.reason, refused.value.retry) == (Reason.IMAGE_PULL_FAILED, True)
    return refused.value


def test_a_tag_is_resolved_by_one_request_without_a_body() -> None:
    async def story(registry: FakeRegistry, client: Registry, image: ImageReference) -> None:
        digest = registry.push("team/app", "1", manifest("new"))
        assert await client.resolve(image, None) == ImageManifest(digest)
        assert [each.method for each in registry.asked if "manifests" in each.path] == ["HEAD"]
        assert "application/vnd.oci.image.index.v1+json" in registry.asked[-1].headers["accept"]

    played(story)


def test_an_index_is_recognised_and_lists_its_platforms() -> None:
    async def story(registry: FakeRegistry, client: Registry, image: ImageReference) -> None:
        digest = registry.push("team/app", "1", index("linux/arm64", "linux/amd64", "unknown/unknown"))
        assert await client.resolve(image, None) == ImageManifest(digest, is_index=True)
        found = await client.platforms(image.at(digest), None)
        assert found == (Platform("linux", "amd64"), Platform("linux", "arm64"))
        assert registry.count("GET") == 1

    played(story)


def test_an_image_for_another_processor_is_refused_with_what_there_is() -> None:
    available = (Platform("linux", "amd64"), Platform("windows", "amd64"))
    check_platform("x", available, Platform("linux", "amd64"))
    with pytest.raises(ImageError, match="made for linux/amd64, windows/amd64, and this host is linux/s390x") as error:
        check_platform("x", available, Platform("linux", "s390x"))
    assert (error.value.reason, error.value.retry) == (Reason.IMAGE_PLATFORM_MISMATCH, False)
    assert host_platform().os == "linux"


def test_a_basic_login_is_sent_at_once() -> None:
    async def story(registry: FakeRegistry, client: Registry, image: ImageReference) -> None:
        await client.resolve(image, USER)
        await client.resolve(image, USER)
        assert [(each.method, each.path, each.login) for each in registry.asked] == [
            ("GET", "/v2/", ""),
            ("HEAD", "/v2/team/app/manifests/1", "ann:pass:word"),
            ("HEAD", "/v2/team/app/manifests/1", "ann:pass:word"),
        ]

    played(story, FakeRegistry(login="ann:pass:word"))


def test_a_token_is_fetched_once_and_used_until_it_expires() -> None:
    async def story(registry: FakeRegistry, client: Registry, image: ImageReference) -> None:
        clock = client._clock
        assert isinstance(clock, FakeClock)
        for seconds in (0.0, 200.0, 100.0):
            clock.block(seconds)
            await client.resolve(image, USER)
        tokens = [each for each in registry.asked if each.path == "/token"]
        assert [each.query for each in tokens] == [{"service": "test", "scope": "repository:team/app:pull"}] * 2
        assert registry.count() == 3

    played(story, FakeRegistry(login="ann:pass:word", tokens=True))


def test_a_token_that_is_refused_is_replaced_once() -> None:
    async def story(registry: FakeRegistry, client: Registry, image: ImageReference) -> None:
        await client.resolve(image, USER)
        registry.issued += 1
        clock = client._clock
        assert isinstance(clock, FakeClock)
        clock.block(1.0)
        await client.resolve(image, USER)
        assert registry.count() == 3

        registry.answer = lambda asked: refused(401, "DENIED", "no") if "manifests" in asked.path else None
        clock.block(400.0)
        await refusal(client, image, USER)
        assert registry.count() == 4

    played(story, FakeRegistry(login="ann:pass:word", tokens=True))


def test_an_identity_token_is_exchanged() -> None:
    async def story(registry: FakeRegistry, client: Registry, image: ImageReference) -> None:
        await client.resolve(image, RegistryCredentials(identity_token="secret-token"))
        [token] = [each for each in registry.asked if each.path == "/token"]
        assert (token.method, token.form["grant_type"]) == ("POST", "refresh_token")
        assert "secret-token" not in str(token.query)

    played(story, FakeRegistry(login="secret-token", tokens=True))


def test_a_login_that_only_manifests_want_is_found() -> None:
    async def story(registry: FakeRegistry, client: Registry, image: ImageReference) -> None:
        registry.answer = lambda asked: Reply(body=b"{}") if asked.path == "/v2/" else None
        await client.resolve(image, USER)
        await client.resolve(image, USER)
        assert registry.count() == 3

    played(story, FakeRegistry(login="ann:pass:word"))


@pytest.mark.parametrize("tokens", [False, True])
def test_a_wrong_login_is_refused_in_the_words_of_the_registry(tokens: bool) -> None:
    async def story(registry: FakeRegistry, client: Registry, image: ImageReference) -> None:
        error = await refusal(client, image, RegistryCredentials("ann", "wrong"), with_body=True)
        words = "incorrect username or password" if tokens else "authentication required"
        assert f"{registry.host} answers 401 Unauthorized: {words} (log in by a pull secret" in str(error)
        assert registry.count() == (0 if tokens else 1)

    played(story, FakeRegistry(login="ann:pass:word", tokens=tokens))


ANSWERS = [
    (refused(403, "DENIED", "requested access to the resource is denied"), "403 Forbidden: requested access"),
    (refused(404, "NAME_UNKNOWN", "repository name not known"), "404 Not Found: repository name not known (check"),
    (refused(429, "TOOMANYREQUESTS", "slow down"), "429 Too Many Requests: slow down"),
    (Reply(500, {}, b"<html>oops</html>"), "answers 500 Internal Server Error"),
    (Reply(500, {}, b'{"errors": 5}'), "answers 500 Internal Server Error"),
    (refused(500, "UNKNOWN", "\x1b[31mred\nline\u202e" * 100), "Error: \\u001b[31mred line"),
    (Reply(418, {}, b""), "answers 418 I'm a Teapot"),
    (Reply(999, {}, b""), "answers 999"),
    (Reply(204, {}), "answers 204 No Content"),
]


@pytest.mark.parametrize(("reply", "words"), ANSWERS)
def test_a_failure_has_the_words_of_the_registry(reply: Reply, words: str) -> None:
    async def story(registry: FakeRegistry, client: Registry, image: ImageReference) -> None:
        registry.answer = lambda asked: reply if "manifests" in asked.path else None
        error = await refusal(client, image, with_body=True)
        assert words in str(error)
        assert len(str(error)) < 600
        assert error.missing is (reply.status == 404)
        assert error.wait is None
        assert registry.count() == 1

    played(story)


def test_without_a_body_there_is_at_least_the_status() -> None:
    async def story(registry: FakeRegistry, client: Registry, image: ImageReference) -> None:
        registry.delete("team/app", "1")
        assert "answers 404 Not Found (check its name and its tag)" in str(await refusal(client, image))

    played(story)


@pytest.mark.parametrize(
    ("status", "asked", "wait"),
    [
        (429, "30", 30.0),
        (503, "7", 7.0),
        (500, "5", 5.0),
        (429, "99999", 3600.0),
        (429, "-5", None),
        (429, "soon", None),
        (429, "9" * 500, None),
        (404, "30", None),
        (429, format_datetime(datetime.datetime.fromtimestamp(START + 90, datetime.UTC), usegmt=True), 90.0),
        (429, format_datetime(datetime.datetime.fromtimestamp(START - 90, datetime.UTC), usegmt=True), 0.0),
    ],
)
def test_a_registry_can_ask_to_wait(status: int, asked: str, wait: float | None) -> None:
    async def story(registry: FakeRegistry, client: Registry, image: ImageReference) -> None:
        reply = Reply(status, {"Retry-After": asked})
        registry.answer = lambda each: reply if "manifests" in each.path else None
        assert (await refusal(client, image)).wait == wait
        registry.answer = lambda each: reply
        assert (await refusal(Registry(RegistryConnection([registry.host], client._clock)), image)).wait == wait

    played(story)


def test_a_registry_that_is_gone_or_breaks_off_is_named() -> None:
    async def story(registry: FakeRegistry, client: Registry, image: ImageReference) -> None:
        gone = ImageReference("127.0.0.1:1", "team/app", "1")
        assert "127.0.0.1:1 cannot be asked: " in str(
            await refusal(Registry(RegistryConnection(["127.0.0.1:1"], FakeClock())), gone)
        )
        registry.answer = lambda asked: Reply(cut=True)
        assert f"{registry.host} cannot be asked: " in str(await refusal(client, image))

    played(story)


def test_a_registry_that_does_not_answer_is_named() -> None:
    async def story(registry: FakeRegistry, client: Registry, image: ImageReference) -> None:
        registry.answer = lambda asked: Reply(pause=asyncio.Event())
        assert f"{registry.host} does not answer within 0.2 s" in str(await refusal(client, image))

    played(story, seconds=0.2)


def test_no_answer_is_larger_than_its_bound() -> None:
    async def story(registry: FakeRegistry, client: Registry, image: ImageReference) -> None:
        registry.answer = lambda asked: Reply(body=b"x" * (4 << 20) + b"y") if "manifests" in asked.path else None
        assert "answers with more than 4194304 bytes" in str(await refusal(client, image, with_body=True))
        registry.answer = lambda asked: Reply(body=b"x" * 65_537)
        assert "answers with more than 65536 bytes" in str(
            await refusal(Registry(RegistryConnection([image.host], FakeClock())), image)
        )

    played(story)


def test_a_manifest_with_another_digest_is_refused() -> None:
    async def story(registry: FakeRegistry, client: Registry, image: ImageReference) -> None:
        digest = registry.push("team/app", "1", index("linux/amd64"))
        registry.answer = lambda asked: Reply(200, {"Docker-Content-Digest": digest}, b"{}")
        assert "sends a manifest with another digest" in str(await refusal(client, image, with_body=True))
        with pytest.raises(ImageError, match="another digest"):
            await client.platforms(image.at(digest), None)

    played(story)


@pytest.mark.parametrize("reply", [Reply(405), Reply(200, {"Docker-Content-Digest": "md5:1"}), Reply(200)])
def test_a_registry_that_does_not_know_the_request_is_asked_for_the_manifest(reply: Reply) -> None:
    async def story(registry: FakeRegistry, client: Registry, image: ImageReference) -> None:
        registry.answer = lambda asked: reply if asked.method == "HEAD" else None
        digest = registry.push("team/app", "1", manifest("x"))
        assert await client.resolve(image, None) == ImageManifest(digest)
        assert await client.resolve(image, None) == ImageManifest(digest)
        assert (registry.count("HEAD"), registry.count("GET")) == (1, 2)

    played(story)


def test_a_redirect_is_followed_without_the_login() -> None:
    async def story(registry: FakeRegistry, client: Registry, image: ImageReference) -> None:
        async with FakeRegistry() as other:
            other.push("team/app", "1", manifest())
            for status in (301, 302, 303, 307, 308):
                target = {"Location": f"http://{other.host}/v2/team/app/manifests/1"}
                registry.answer = lambda asked, to=target, code=status: (  # type: ignore[misc]
                    Reply(code, to) if "manifests" in asked.path else None
                )
                with pytest.raises(ImageError, match="redirects to an address that is not one of https"):
                    await client.resolve(image, USER)
                both = Registry(RegistryConnection([registry.host, other.host], FakeClock()))
                await both.resolve(image, USER)
                await both.close()
            assert {each.headers.get("authorization") for each in other.asked} == {None}
            assert registry.asked[-1].login == "ann:pass:word"

    played(story, FakeRegistry(login="ann:pass:word"))


def test_a_redirect_on_the_same_host_keeps_the_login_and_has_an_end() -> None:
    async def story(registry: FakeRegistry, client: Registry, image: ImageReference) -> None:
        def moved(asked: RegistryRequest) -> Reply | None:
            return Reply(307, {"Location": "/v2/new/app/manifests/1"}) if "/v2/team" in asked.path else None

        registry.push("new/app", "1", manifest())
        registry.answer = moved
        await client.resolve(image, USER)
        assert registry.asked[-1].login == "ann:pass:word"
        registry.answer = lambda asked: Reply(302, {"Location": asked.path}) if "manifests" in asked.path else None
        assert "redirects more than 3 times" in str(await refusal(client, image, USER))

    played(story, FakeRegistry(login="ann:pass:word"))


@pytest.mark.parametrize("realm", ["http://127.0.0.1:2/token", "ftp://x/", "/token", "http://[", "file:///etc/passwd"])
def test_no_login_is_sent_to_a_token_service_without_tls(realm: str) -> None:
    async def story(registry: FakeRegistry, client: Registry, image: ImageReference) -> None:
        challenge = {"WWW-Authenticate": f'Bearer realm="{realm}",service="x"'}
        registry.answer = lambda asked: Reply(401, challenge)
        assert "names a token service that is not one of https" in str(await refusal(client, image, USER))

    played(story)


@pytest.mark.parametrize("body", [b"", b"[]", b'{"token": 5}', b'{"token": "a\\nb"}', b'{"token": ""}'])
def test_a_token_service_that_sends_no_token_is_named(body: bytes) -> None:
    async def story(registry: FakeRegistry, client: Registry, image: ImageReference) -> None:
        registry.answer = lambda asked: Reply(body=body) if asked.path == "/token" else None
        assert "sends no token for" in str(await refusal(client, image, USER))

    played(story, FakeRegistry(login="ann:pass:word", tokens=True))


def test_plain_http_is_used_only_where_the_settings_allow_it(tmp_path: Path) -> None:
    async def story(registry: FakeRegistry, client: Registry, image: ImageReference) -> None:
        assert "if plain http is meant, name it in `images.insecure`" in str(await refusal(client, image))

    async def untrusted(registry: FakeRegistry, client: Registry, image: ImageReference) -> None:
        assert "add the authority that signed it to the certificates of this host" in str(await refusal(client, image))
        assert registry.asked == []

    played(story, insecure=False)
    played(untrusted, FakeRegistry(tls=_certificate(tmp_path)), insecure=False)


def _certificate(path: Path) -> ssl.SSLContext:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.UTC)
    built = x509.CertificateBuilder(name, name, key.public_key(), 1, now, now + datetime.timedelta(days=1))
    file = path / "both.pem"
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    certificate = built.sign(key, hashes.SHA256())
    file.write_bytes(key.private_bytes(*form) + certificate.public_bytes(serialization.Encoding.PEM))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    return context


@pytest.mark.parametrize("seed", range(20))
async def test_whatever_a_registry_answers_is_a_manifest_or_an_error(seed: int) -> None:
    rng = random.Random(seed)
    headers = {
        "WWW-Authenticate": ["Bearer", 'Bearer realm="', "Basic", 'Bearer realm="https://127.0.0.1:1/"', "x" * 9000],
        "Docker-Content-Digest": ["sha256:", "", "x" * 9000, f"sha256:{'0' * 64}"],
        "Retry-After": ["-1", "9" * 400, "Thu, 99 Foo", "1e9", "Mon, 01 Jan 0001 00:00:00 GMT"],
        "Location": ["", "/", "//", "http://[", "https://127.0.0.1:1/", "\x00", "javascript:1", "/v2/x"],
        "Content-Type": ["", ";", "x/y"],
    }
    bodies = [b"", b"{", b"[" * 50_000, b'{"errors": [{"message": {}}]}', b'{"errors": "x"}', b"\xff\xfe", b"7"]

    def answer(asked: RegistryRequest) -> Reply:
        chosen = {name: rng.choice(values) for name, values in headers.items() if rng.random() < 0.7}
        return Reply(rng.choice([200, 200, 301, 307, 400, 401, 404, 429, 500, 503]), chosen, rng.choice(bodies))

    fake = FakeRegistry()
    fake.answer = answer
    client = Registry(RegistryConnection((), FakeClock(), transport=fake.transport("r.example")))
    image = ImageReference("r.example", "team/app", "1")
    errors = [error for number in range(30) if (error := await refused_or_not(client, image, number))]
    assert all(str(error).isprintable() for error in errors)
    assert all(error.wait is None or 0.0 <= error.wait <= 3600.0 for error in errors)
    await client.close()


async def refused_or_not(client: Registry, image: ImageReference, number: int) -> ImageError | None:
    try:
        await client.resolve(image, USER if number % 2 else None, with_body=number % 3 == 0)
    except ImageError as error:
        return error
    return None
