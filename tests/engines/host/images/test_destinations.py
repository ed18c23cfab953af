"""Where an image may lead the daemon: to no address of the host or of its cloud, and to what the settings allow."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import random
import socket
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from reconciler.clock import SystemClock
from reconciler.engines.host.images.image_service import ImageContext, ImageEvents, ImageService, WorkloadImages
from reconciler.engines.images.connection import ADDRESSES, PinnedTransport, RegistryConnection
from reconciler.engines.images.registry import Registry
from reconciler.engines.workload.image_reference import ImageError, ImageReference
from reconciler.model.addresses import is_internal
from reconciler.model.image_names import exact_hosts, full_name, is_allowed
from reconciler.model.key import Key, Kind
from reconciler.reasons import Reason
from reconciler.settings import ImageSettings
from tests.support.clock import FakeClock
from tests.support.images import FakeImageStore
from tests.support.registry import FakeRegistry, Reply, manifest

DIGEST = f"sha256:{'1' * 64}"
INTERNAL = (
    "127.0.0.1",
    "127.8.9.10",
    "0.0.0.0",
    "0.1.2.3",
    "169.254.169.254",
    "169.254.0.1",
    "100.100.100.200",
    "168.63.129.16",
    "224.0.0.1",
    "::1",
    "::",
    "fe80::1",
    "fe80::1%eth0",
    "fd00:ec2::254",
    "::ffff:127.0.0.1",
    "::ffff:169.254.169.254",
    "::127.0.0.1",
    "64:ff9b::169.254.169.254",
    "2002:7f00:1::",
    "ff02::1",
)
OUTSIDE = ("8.8.8.8", "10.0.0.1", "192.168.1.1", "100.100.100.201", "2001:db8::1", "fd00::1", "::ffff:8.8.8.8")
SPELLED = (
    "127.0.0.1",
    "127.1",
    "2130706433",
    "0x7f000001",
    "0x7f.1",
    "0177.0.0.1",
    "0.0.0.0",
    "0",
    "localhost.localdomain",
)


@pytest.mark.parametrize("text", INTERNAL)
def test_an_address_of_the_host_its_link_or_its_cloud_is_internal(text: str) -> None:
    assert is_internal(text)


@pytest.mark.parametrize("text", OUTSIDE)
def test_any_other_address_is_not_internal(text: str) -> None:
    assert not is_internal(text)


@pytest.mark.parametrize("spelled", SPELLED)
async def test_an_image_leads_to_no_address_of_the_host_however_it_is_written(spelled: str) -> None:
    async with listening("127.0.0.1") as (port, peers):
        error = await refusal(ImageReference(f"{spelled}:{port}", "team/app", "1"))
        assert "the operator names it in `images.allowed`" in str(error) or "cannot be reached" in str(error)
        assert peers == []


@pytest.mark.parametrize("host", ["169.254.169.254", "100.100.100.200:80"])
async def test_an_image_leads_to_no_metadata_of_a_cloud(host: str) -> None:
    error = await refusal(ImageReference(host, "x/y", "1"))
    assert (error.reason, "is not asked" in str(error)) == (Reason.IMAGE_NOT_ALLOWED, True)


async def test_a_host_that_the_settings_name_may_have_any_address() -> None:
    async with FakeRegistry() as fake:
        fake.push("team/app", "1", manifest())
        image = ImageReference(fake.host, "team/app", "1")
        by_insecure = Registry(RegistryConnection([fake.host], FakeClock()))
        assert (await by_insecure.resolve(image, None)).digest
        await by_insecure.close()
        by_name = Registry(RegistryConnection((), FakeClock(), named=exact_hosts([f"{fake.host}/team/*"])))
        with pytest.raises(ImageError, match="it does not speak TLS"):
            await by_name.resolve(image, None)
        await by_name.close()


@pytest.mark.parametrize("where", ["redirect", "token service"])
async def test_a_registry_leads_to_no_address_of_the_host(where: str) -> None:
    async with FakeRegistry() as fake, listening("127.0.0.1") as (port, peers):
        url = f"https://127.0.0.1:{port}/"
        headers = {"Location": url} if where == "redirect" else {"WWW-Authenticate": f'Bearer realm="{url}"'}
        fake.answer = lambda _asked: Reply(302 if where == "redirect" else 401, headers)
        error = await refusal(ImageReference(fake.host, "team/app", "1"), insecure=[fake.host])
        assert f"127.0.0.1:{port} is not asked" in str(error)
        assert peers == []


async def test_the_address_that_was_checked_is_the_one_that_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name server that answers with another address the second time."""
    real, answers = socket.getaddrinfo, ["192.0.2.1"]

    def resolve(host: Any, port: Any, *more: Any, **options: Any) -> Any:
        name = answers.pop(0) if host == "registry.test" and answers else "127.0.0.1"
        return real(name if host == "registry.test" else host, port, *more, **options)

    async with listening("127.0.0.1") as (port, peers):
        monkeypatch.setattr(socket, "getaddrinfo", resolve)
        error = await refusal(ImageReference(f"registry.test:{port}", "team/app", "1"), seconds=0.5)
        assert "cannot be reached as a registry" in str(error)
        assert peers == []


async def test_the_certificate_and_the_request_are_of_the_host_and_not_of_its_address(tmp_path: Path) -> None:
    context, authority = certificate(tmp_path, "registry.test")

    async def story() -> None:
        async with FakeRegistry(tls=context) as fake:
            port = fake.host.rpartition(":")[2]
            async with httpx2.AsyncClient(transport=PinnedTransport()) as client:
                # Nobody listens at the first address.
                pinned = {ADDRESSES: ("127.0.0.2", "127.0.0.1")}
                answer = await client.get(f"https://registry.test:{port}/v2/", extensions=pinned)
                assert answer.status_code == 200
                assert fake.asked[-1].headers["host"] == f"registry.test:{port}"
                with pytest.raises(httpx2.ConnectError, match="certificate"):
                    await client.get(f"https://other.test:{port}/v2/", extensions=pinned)

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SSL_CERT_FILE", str(authority))
        await story()


async def test_a_closed_port_and_one_that_is_no_registry_have_the_same_error(own_address: str) -> None:
    with socket.socket() as closed:
        closed.bind((own_address, 0))
        ports = [closed.getsockname()[1]]
        async with listening(own_address) as (silent, _), listening(own_address, b"220 hello\r\n") as (talking, _):
            errors = set()
            for port in (*ports, silent, talking):
                image = ImageReference(f"{own_address}:{port}", "team/app", "1")
                errors.add(str(await refusal(image, seconds=0.5)).replace(f"{port}", "PORT"))
        assert errors == {
            f"the image {own_address}:PORT/team/app:1: {own_address}:PORT cannot be reached as a registry; the log "
            "of the daemon has the cause"
        }


async def test_podman_is_not_asked_for_an_image_of_an_internal_address(tmp_path: Path) -> None:
    store = FakeImageStore(FakeRegistry())
    service = images(tmp_path, store, ImageSettings())
    wanted = WorkloadImages(Key(Kind.WORKLOAD, "shop", "web"), 1, {"main": f"169.254.169.254/x@{DIGEST}"})
    with pytest.raises(ImageError, match="is not asked") as error:
        await service.ensure(wanted)
    assert (error.value.reason, store.pulls) == (Reason.IMAGE_NOT_ALLOWED, [])
    await service.close()


@pytest.mark.parametrize(
    ("image", "allowed", "permitted"),
    [
        ("ghcr.io/acme/web:1", ("ghcr.io/acme/*",), True),
        ("ghcr.io/acme/team/web:1", ("ghcr.io/acme/*",), True),
        ("ghcr.io/acme-evil/web:1", ("ghcr.io/acme/*",), False),
        ("GHCR.io/acme/web:1", ("ghcr.io/acme/*",), True),
        ("ghcr.io:444/acme/web:1", ("ghcr.io/acme/*",), False),
        ("evil.example/ghcr.io/acme/web:1", ("ghcr.io/acme/*",), False),
        ("evil.example/a.example.com/web:1", ("*.example.com/*",), False),
        ("a.example.com/web@sha256:" + "1" * 64, ("*.example.com/*",), True),
        ("a.example.com:5000/web:1", ("*.example.com/*",), False),
        ("a.example.com:5000/web:1", ("*.example.com:5000",), True),
        ("docker.io/nginx:1", ("docker.io/library/*",), True),
        ("nginx:1", ("docker.io/library/*",), True),
        ("team/nginx:1", ("docker.io/library/*",), False),
        ("index.docker.io/nginx:1", ("docker.io/library/nginx",), True),
        ("ghcr.io/x/y:1", (), True),
        ("ghcr.io/x/y:1", ("*",), True),
        ("ghcr.io:1/x/y:1", ("*",), False),
    ],
)
def test_a_pattern_narrows_registries_and_repositories(image: str, allowed: tuple[str, ...], permitted: bool) -> None:
    assert is_allowed(full_name(image), allowed) is permitted


async def test_an_image_that_no_pattern_fits_is_refused_before_anything_is_asked(tmp_path: Path) -> None:
    async with FakeRegistry() as fake:
        host = fake.host
        settings = ImageSettings(insecure=(host,), registry=f"{host}/own", allowed=(f"{host}/team/*", "localhost"))
        service = images(tmp_path, FakeImageStore(fake), settings)
        fake.push("team/app", "1", manifest())
        fake.push("own/app", "1", manifest())
        for version, image in enumerate((f"{host}/team/app:1", "//image/app:1"), 1):
            await service.ensure(WorkloadImages(Key(Kind.WORKLOAD, "shop", "web"), version, {"main": image}))
        before = len(fake.asked)
        wanted = WorkloadImages(Key(Kind.WORKLOAD, "shop", "web"), 3, {"main": f"{host}/other/app:1"})
        with pytest.raises(ImageError) as error:
            await service.ensure(wanted)
        expected = (
            f"the image {host}/other/app:1 is not allowed: no pattern of `images.allowed` in the settings fits it"
        )
        assert (str(error.value), error.value.reason, error.value.retry) == (
            expected,
            Reason.IMAGE_NOT_ALLOWED,
            False,
        )
        assert len(fake.asked) == before
        await service.close()


@pytest.fixture
def own_address() -> str:
    """An address of this host that is not internal."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            pytest.skip("this host has no address but loopback")
        address: str = probe.getsockname()[0]
    if is_internal(address):
        pytest.skip("this host has no address but loopback")
    return address


def images(path: Path, store: FakeImageStore, settings: ImageSettings) -> ImageService:
    """The service with the real client of registries."""
    context = ImageContext(
        path, "acme", settings, lambda _key: pytest.fail("no secret"), SystemClock(), random.Random(1)
    )
    return ImageService(context, store, ImageEvents(lambda _tag, _new: None, lambda _key, _error: None, set))


async def refusal(
    image: ImageReference, insecure: tuple[str, ...] | list[str] = (), seconds: float = 5.0
) -> ImageError:
    """The error of a request for ``image``."""
    client = Registry(RegistryConnection(insecure, FakeClock(), seconds))
    try:
        with pytest.raises(ImageError) as error:
            await client.resolve(image, None)
    finally:
        await client.close()
    return error.value


@contextlib.asynccontextmanager
async def listening(address: str, words: bytes = b"") -> AsyncIterator[tuple[int, list[object]]]:
    """A server that says ``words`` and then nothing: its port, and who has connected."""
    peers: list[object] = []

    async def serve(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peers.append(writer.get_extra_info("peername"))
        writer.write(words)

    server = await asyncio.start_server(serve, address, 0)
    try:
        yield server.sockets[0].getsockname()[1], peers
    finally:
        server.close()


def certificate(path: Path, host: str) -> tuple[ssl.SSLContext, Path]:
    """A server's side of TLS for ``host``, and the file that lets clients trust it."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, host)])
    now = datetime.datetime.now(datetime.UTC)
    built = x509.CertificateBuilder(name, name, key.public_key(), 1, now, now + datetime.timedelta(days=1))
    built = built.add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False)
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    signed = built.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    both, authority = path / "both.pem", path / "authority.pem"
    both.write_bytes(key.private_bytes(*form) + signed)
    authority.write_bytes(signed)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(both)
    return context, authority
