"""Signs commits with an SSH key, by the program that Git uses for it."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from reconciler.errors import SourceError, UsageError
from reconciler.printable import truncate_text
from reconciler.source.git_command import clean_environment, run_git

if TYPE_CHECKING:
    from reconciler.settings import Settings

NAMESPACE = "git"
"""What Git signs for: a signature for another purpose is no signature of a commit."""
_SECONDS = 30.0
_NOISE = ("Signing file", "Write signature", "@@@")
_PASSPHRASE = "incorrect passphrase"


def check_signing_key(settings: Settings) -> None:
    """Raises UsageError if ``settings`` have a key for commits of the API that this process cannot sign with."""
    if settings.api is None or settings.api.signing_key is None:
        return
    try:
        _sign_content(b"", settings.api.signing_key)
    except SourceError as error:
        raise UsageError(f"`api.signingKey` of the settings cannot be used: {error}") from None


def signed_commit(head: str, message: str, key: Path) -> bytes:
    """The commit of ``head``, its lines up to the committer, and ``message``, signed. Raises SourceError."""
    signature = _sign_content(f"{head}\n{message}\n".encode(), key)
    return f"{head}gpgsig {signature.replace(chr(10), chr(10) + ' ')}\n\n{message}\n".encode()


def _sign_content(content: bytes, key: Path) -> str:
    """The signature of ``content``, in armor. Raises SourceError, whose message has the path of the key at most."""
    try:
        with key.open("rb") as file:
            begin = file.read(64)
    except OSError as error:
        raise SourceError(f"{key} cannot be read: {error.strerror}") from None
    if b"PRIVATE KEY" not in begin or b"PGP" in begin:
        raise SourceError(f"{key} is no SSH private key: make one with `ssh-keygen -t ed25519 -N '' -f FILE`")
    with tempfile.TemporaryDirectory(prefix="reconciler-") as name:
        payload = Path(name, "commit")
        payload.write_bytes(content)
        command = ["ssh-keygen", "-Y", "sign", "-n", NAMESPACE, "-f", str(key), str(payload)]
        try:
            answer = run_git(command, Path(name), clean_environment(), _SECONDS)
        except FileNotFoundError:
            raise SourceError("ssh-keygen is not installed: install openssh-client") from None
        if answer is None or answer.code:
            raise SourceError(f"{key} does not sign: {_explain_failure('' if answer is None else answer.errors)}")
        return payload.with_name("commit.sig").read_text().strip()


def _explain_failure(errors: str) -> str:
    if _PASSPHRASE in errors:
        return "it has a passphrase, which the daemon cannot enter: remove it with `ssh-keygen -p`"
    lines = [line for line in errors.splitlines() if line.strip() and not line.startswith(_NOISE)]
    return truncate_text(" ".join(lines)) or f"ssh-keygen did not answer within {_SECONDS:g} s"
