"""The keyring of a desktop for the tokens of logins, by `secret-tool` of libsecret.

That program answers in 10 ms; the library `keyring` takes longer to import than all else of a short command.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import msgspec
from msgspec.structs import replace

from reconciler.errors import ReconcilerError
from reconciler.platform_cli.profiles import Profile

_TOOL = "secret-tool"
_BUS = "DBUS_SESSION_BUS_ADDRESS"
UNLOCK_SECONDS = 120.0
"""How long a person has to unlock the keyring."""


class KeyringError(ReconcilerError):
    """The keyring does not take, give or remove tokens."""


class ProfileTokens(msgspec.Struct, frozen=True, rename="camel"):
    """What the keyring has of a profile."""

    token: str = ""
    refresh_token: str = ""


class TokenKeyring:
    """The tokens of the profiles in the file ``path``, in the keyring of this user, which answers within ``seconds``.

    Methods raise KeyringError.
    """

    def __init__(self, path: Path, environ: Mapping[str, str], seconds: float = UNLOCK_SECONDS) -> None:
        self._path = path
        self._environ = environ
        self._seconds = seconds

    def is_there(self) -> bool:
        """Whether this session has a bus, on which a keyring can be, and the program that asks it."""
        return bool(self._environ.get(_BUS)) and shutil.which(_TOOL) is not None

    def with_tokens(self, name: str, profile: Profile) -> Profile:
        """The profile ``name`` with its tokens, those from the keyring if it keeps them."""
        if not profile.keyring:
            return profile
        try:
            tokens = msgspec.json.decode(self._run("lookup", name) or b"{}", type=ProfileTokens)
        except msgspec.MsgspecError:
            raise KeyringError(_describe_keyring_failure(name, "its entry is damaged")) from None
        return replace(profile, token=tokens.token, refresh_token=tokens.refresh_token)

    def put(self, name: str, profile: Profile) -> Profile:
        """The profile ``name`` as its file has it: without tokens, which the keyring has then."""
        tokens = msgspec.json.encode(ProfileTokens(profile.token, profile.refresh_token))
        self._run("store", name, f"--label=platform: profile {name}", tokens=tokens)
        return replace(profile, token="", refresh_token="", keyring=True)

    def remove(self, name: str) -> None:
        """Remove the tokens of the profile ``name``, if there are any."""
        self._run("clear", name)

    def _run(self, action: str, name: str, *options: str, tokens: bytes = b"") -> bytes:
        """The output of ``secret-tool``, which gets tokens on stdin: the list of processes shows its words."""
        words = [_TOOL, action, *options, "service", "platform", "profile", name, "file", str(self._path)]
        try:
            done = subprocess.run(
                words, input=tokens, capture_output=True, timeout=self._seconds, check=False, env=dict(self._environ)
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise KeyringError(_describe_keyring_failure(name, str(error))) from None
        # A lookup without a result has the exit code 1 and no text, as has a clear of nothing.
        if done.returncode and done.stderr:
            reason = done.stderr.decode(errors="replace").strip().splitlines()[-1]
            raise KeyringError(_describe_keyring_failure(name, reason))
        return done.stdout


def _describe_keyring_failure(name: str, reason: str) -> str:
    return f"the keyring cannot be asked ({reason}). To log in without it: platform login {name} --no-keyring"
