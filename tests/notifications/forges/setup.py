"""Forges of settings, for a stub."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import msgspec
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from reconciler.clock import SystemClock
from reconciler.model.finding import Finding, Severity
from reconciler.notifications.forges.registry import ForgeOptions, ForgeSet
from reconciler.notifications.message import EventType, Message, MessageResource, State
from reconciler.settings import SourceSettings
from reconciler.settings.forges import ForgeAppSettings, ForgeSettings
from tests.notifications.forges.stub_forge import COMMIT, TOKEN

KINDS = ("github", "gitlab", "gitea", "forgejo", "bitbucket", "bitbucket-server")
SOURCE = SourceSettings("shop", "https://git.example.com/acme/shop.git", branch="main")


@cache
def make_key() -> bytes:
    """The private key of an App, as PEM."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    return key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption())


def make_settings(kind: str, url: str, directory: Path, *, app: bool = False, **changes: object) -> ForgeSettings:
    """The settings of a forge of ``kind`` at ``url``, with a token in ``directory``."""
    token = directory / "token"
    token.write_text(f"{TOKEN}\n")
    settings = ForgeSettings(type=kind, url=url, sources=("shop",), token_file=token)  # type: ignore[arg-type]
    if app:
        key = directory / "app.pem"
        key.write_bytes(make_key())
        settings = msgspec.structs.replace(settings, app=ForgeAppSettings("77", key), token_file=None)
    return msgspec.structs.replace(settings, **changes)


def make_set(settings: ForgeSettings, *, pause: float = 0.0, seconds: float = 60.0, name: str = "forge") -> ForgeSet:
    """The forge of ``settings`` for the source ``shop``."""
    return ForgeSet(name, settings, (SOURCE,), SystemClock(), ForgeOptions(pause, seconds))


def make_message(state: State = State.SUCCESS, **changes: object) -> Message:
    """A message about a run of the commit of tests."""
    message = Message(
        id=f"run/shop/{COMMIT}",
        sequence=1,
        event=EventType.RUN,
        state=state,
        title="shop: 2 created",
        at=1_800_000_000.0,
        source="shop",
        revision=f"main@sha1:{COMMIT}",
        commit=COMMIT,
        counts={"created": 2},
        link="https://reconciler.example.com/page/runs/7",
    )
    return msgspec.structs.replace(message, **changes)


def make_finding(message: str = "`replicas` is no number", path: str = "shop/api.yaml", line: int = 7) -> Finding:
    """An error in a file."""
    return Finding(path, line, 3, "schema-type", Severity.ERROR, message, "write a number")


FAILED = MessageResource("workload/shop/api", "update", "here", "ImagePullFailed", "there is no image api:2")
