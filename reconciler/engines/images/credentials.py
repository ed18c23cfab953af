"""Credentials of registries: from the pull secrets of a GVC, and from the credentials file of this host."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import msgspec

from reconciler.engines.images.protocol import RegistryCredentials
from reconciler.engines.protocol import SecretReader
from reconciler.engines.workload.image_reference import DOCKER_HOST, DOCKER_HUB, ImageError, ImageReference
from reconciler.model.key import Key
from reconciler.secrets.host_files import HostSecretError, read_private_file

_HUB_NAMES = frozenset({DOCKER_HUB, f"index.{DOCKER_HUB}", DOCKER_HOST})
_AROUND = re.compile(r"^https?://|(?:/v[12])?/*$")
_ECR = re.compile(r"[0-9]{12}\.dkr\.ecr(?:-fips)?\.[-a-z0-9]+\.amazonaws\.com(?:\.cn)?")
_GOOGLE = re.compile(r"(?:[-a-z0-9]+\.)?gcr\.io|[-a-z0-9]+\.pkg\.dev")
_JSON_KEY = "_json_key"
"""The user with which the registries of Google take the key of a service account as the password."""


class _Entry(msgspec.Struct, frozen=True):
    auth: str = ""
    username: str = ""
    password: str = ""
    identitytoken: str = ""


class _AuthFile(msgspec.Struct, frozen=True):
    auths: dict[str, _Entry] = {}


class Keychain:
    """Finds credentials: in secrets through ``read``, then in ``file``, which ``podman login`` writes.

    Both are read at each search, so that the newest values count. Nothing is logged, and no error quotes a value.
    """

    def __init__(self, read: SecretReader, file: Path | None) -> None:
        self._read = read
        self._file = file

    def find(self, reference: ImageReference, secrets: Sequence[Key]) -> RegistryCredentials | None:
        """The credentials for ``reference``: of the first secret that has some, else of the file; None without any.

        Within a secret the longest matching entry counts. Blocks on the disk. Raises EngineError.
        """
        for key in secrets:
            credentials = self._of_secret(reference, key)
            if credentials is not None:
                return credentials
        credentials = self._of_file(reference)
        if credentials is None:
            self._check_tokens(reference, secrets)
        return credentials

    def _of_secret(self, reference: ImageReference, key: Key) -> RegistryCredentials | None:
        secret = self._read(key)
        content = secret.content
        if secret.type == "docker" and isinstance(content, str):
            return _find_login(reference, content.encode(), str(key))
        if secret.type == "gcp" and isinstance(content, str) and _GOOGLE.fullmatch(reference.registry):
            return RegistryCredentials(_JSON_KEY, content)
        return None

    def _of_file(self, reference: ImageReference) -> RegistryCredentials | None:
        if self._file is None:
            return None
        try:
            content = read_private_file(self._file, str(self._file))
        except HostSecretError as error:
            raise ImageError(f"the file of `images.credentials` cannot be used: {error}") from None
        return _find_login(reference, content.encode(), str(self._file))

    def _check_tokens(self, reference: ImageReference, secrets: Sequence[Key]) -> None:
        """Refuse an image that needs a token of AWS: such tokens are not requested here."""
        for key in secrets:
            secret = self._read(key)
            repos = secret.content.get("repos") if isinstance(secret.content, dict) else None
            named = [repo for repo in repos if isinstance(repo, str)] if isinstance(repos, list) else []
            covers = any(_covers_name(_normalize_name(text), reference.name) for text in named) or _ECR.fullmatch(
                reference.registry
            )
            if secret.type == "ecr" and covers:
                raise ImageError(
                    f"the image {reference} cannot be pulled with {key}: a secret of type ecr needs a token that AWS "
                    f"issues, and this host asks for none; put the output of `aws ecr get-login-password` for "
                    f"{reference.registry} into the file of `images.credentials`, for example by a timer"
                )


def list_logins(path: Path) -> list[str]:
    """The registries, or parts of them, for which the file at ``path`` has entries. Raises ImageError."""
    try:
        content = read_private_file(path, str(path)).encode()
        return [_normalize_name(entry) for entry in msgspec.json.decode(content, type=_AuthFile).auths]
    except (HostSecretError, msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise ImageError(f"the file of `images.credentials` cannot be used: {error}") from None


def _find_login(reference: ImageReference, content: bytes, source: str) -> RegistryCredentials | None:
    """The credentials for ``reference`` in ``content``, which has the form of Docker's config.json."""
    try:
        entries = msgspec.json.decode(content, type=_AuthFile).auths
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        _refuse_pull(f"{source} is not a file of credentials: write " + '{"auths": {"REGISTRY": {"auth": "..."}}}')
    texts = [entry for entry in entries if _covers_name(_normalize_name(entry), reference.name)]
    if not texts:
        return None
    name = max(texts, key=lambda registry: len(_normalize_name(registry)))
    return _of_entry(entries[name], f"the entry for {reference.registry} in {source}")


def _of_entry(entry: _Entry, source: str) -> RegistryCredentials:
    username, password = entry.username, entry.password
    if entry.auth:
        try:
            username, _, password = base64.b64decode(entry.auth, validate=True).decode().partition(":")
        except (binascii.Error, UnicodeError):
            _refuse_pull(f"{source} has an `auth` that is not base64 of USER:PASSWORD")
    if not entry.identitytoken and not (username and password):
        _refuse_pull(
            f"{source} has no login: credential helpers are not used, so run `podman login --authfile FILE` again"
        )
    return RegistryCredentials(username, password.rstrip("\0"), entry.identitytoken)


def _normalize_name(name: str) -> str:
    """The registry, or a part of it, that an entry ``name`` is for: ``https://index.docker.io/v1/`` → docker.io."""
    registry, slash, rest = _AROUND.sub("", name).partition("/")
    return (DOCKER_HUB if registry.lower() in _HUB_NAMES else registry.lower()) + slash + rest


def _covers_name(entry: str, name: str) -> bool:
    return bool(entry) and (name == entry or name.startswith(f"{entry}/"))


def _refuse_pull(message: str) -> NoReturn:
    raise ImageError(f"no image is pulled: {message}")
