"""Secrets of channels in plain files, and in files that a real SOPS encrypted."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from reconciler.notifications.channels.channel import SendFailed
from reconciler.notifications.channels.registry import make_channels
from reconciler.notifications.channels.secret_files import SecretFiles, make_secret_files
from reconciler.notifications.message import EventType, Message
from reconciler.settings import SecretSettings, Settings
from reconciler.settings.notifications import ChannelSettings, NotificationSettings, WebhookChannelSettings
from tests.notifications.receiver import Receiver
from tests.support.clock import FakeClock
from tests.support.sops import fresh, needs_sops, sops
from tests.support.waiting import serving

SECRET = "planted-7f3a"


class Vault:
    """A folder with an identity, in which SOPS encrypts."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._identity, self._recipient = fresh()
        self.key = folder / "key.txt"
        self.key.write_text(self._identity)
        self.key.chmod(0o600)
        self.settings = Settings(org="acme", sources=(), state=folder, secrets=SecretSettings(identity=self.key))
        self.files = make_secret_files(self.settings)

    def encrypt(self, name: str, text: str, *options: str) -> Path:
        """The encrypted file ``name``."""
        path = self.folder / name
        path.write_text(text)
        done = sops(self.folder, self._identity, "encrypt", "--in-place", "--age", self._recipient, *options, name)
        assert done.returncode == 0, done.stderr
        assert SECRET not in path.read_text()
        return path


@pytest.fixture
def vault(tmp_path: Path) -> Vault:
    return Vault(tmp_path)


def test_a_plain_file_is_one_line(vault: Vault) -> None:
    path = vault.folder / "secret"
    path.write_text(f"# of the channel\n\n{SECRET}\n")
    assert vault.files.read_line(path, "secret") == SECRET
    path.write_text(f"{SECRET}\n{SECRET}\n")
    with pytest.raises(SendFailed, match="has several lines, and a secret is one") as raised:
        vault.files.read_line(path, "secret")
    assert SECRET not in str(raised.value)


@needs_sops
def test_a_file_that_was_encrypted_as_a_whole_is_read_as_before(vault: Vault) -> None:
    path = vault.encrypt("urls", f"# services\nslack://{SECRET}/b/c\nntfy://{SECRET}\n")
    assert vault.files.read_lines(path, "URL") == [f"slack://{SECRET}/b/c", f"ntfy://{SECRET}"]
    pem = "-----BEGIN PRIVATE KEY-----\nabc\n-----END PRIVATE KEY-----\n"
    assert vault.files.read_text(vault.encrypt("key.pem", pem), "key") == pem


@needs_sops
@pytest.mark.parametrize("name", ["channels.yaml", "channels.json"])
def test_a_field_of_an_encrypted_file_is_named(vault: Vault, name: str) -> None:
    path = vault.encrypt(name, f'{{"ops": "{SECRET}-1", "team": "{SECRET}-2"}}')
    assert vault.files.read_line(Path(f"{path}#team"), "URL") == f"{SECRET}-2"
    for wrong, words in ((path, f"write {path}#FIELD"), (Path(f"{path}#shop"), "the field shop is missing")):
        with pytest.raises(SendFailed, match=words) as raised:
            vault.files.read_line(wrong, "URL")
        assert SECRET not in str(raised.value)
    single = vault.encrypt(f"single-{name}", f'{{"ops": "{SECRET}-1"}}')
    assert vault.files.read_line(single, "URL") == f"{SECRET}-1"


@needs_sops
def test_what_cannot_be_decrypted_is_named_and_is_read_once_it_can(vault: Vault) -> None:
    path = vault.encrypt("secret", SECRET)
    with pytest.raises(SendFailed, match="the settings name no identity to decrypt this with"):
        SecretFiles().read_line(path, "secret")
    identity = vault.key.read_text()
    vault.key.write_text(fresh()[0])
    with pytest.raises(SendFailed, match=r"the secret in .* cannot be read") as raised:
        vault.files.read_line(path, "secret")
    assert fresh()[0][:16] not in str(raised.value)
    vault.key.write_text(identity)
    assert vault.files.read_line(path, "secret") == SECRET
    path.write_text(path.read_text().replace("ENC[AES256_GCM,data:", "ENC[AES256_GCM,data:AAAA", 1))
    with pytest.raises(SendFailed, match="cannot be read: this value was changed"):
        vault.files.read_line(path, "secret")


@pytest.mark.parametrize("text", ["sops: [", "sops: 1\n---\nsops: 2\n", 'a: "sops"\n"sops": {}\n', "sops:\n  mac: x\n"])
def test_a_broken_encrypted_file_is_an_error_for_people(vault: Vault, text: str) -> None:
    path = vault.folder / "secret.yaml"
    path.write_text(f"password: {SECRET}\n{text}")
    with pytest.raises(SendFailed, match=r"the secret in .*secret.yaml.* cannot be read") as raised:
        vault.files.read_line(Path(f"{path}#password"), "secret")
    assert SECRET not in str(raised.value)


def test_a_plain_file_has_no_field(vault: Vault) -> None:
    path = vault.folder / "secret#1"
    path.write_text(SECRET)
    assert vault.files.read_line(path, "secret") == SECRET
    (vault.folder / "secret").write_text(SECRET)
    with pytest.raises(SendFailed, match="secret is not encrypted with SOPS"):
        vault.files.read_line(vault.folder / "secret#2", "secret")


@needs_sops
async def test_a_webhook_has_its_url_and_its_secret_in_an_encrypted_file(vault: Vault) -> None:
    receiver = Receiver()
    with serving(receiver):
        path = vault.encrypt("hook.yaml", f"url: {receiver.url}/{SECRET}\nsecret: {SECRET}\n")
        hook = WebhookChannelSettings(Path(f"{path}#secret"), url_file=Path(f"{path}#url"))
        wanted = NotificationSettings({"ops": ChannelSettings(webhook=hook)})
        settings = msgspec.structs.replace(vault.settings, notifications=wanted)
        channel = make_channels(settings, wanted, FakeClock())["ops"]
        await channel.send(Message(id="x", sequence=1, event=EventType.TEST, title="A test", at=0.0), "")
        await channel.close()
    assert receiver.paths == [f"/services/hunter2/{SECRET}"]
    assert SECRET.encode() not in receiver.requests[0][1]
