"""Runs one ``git`` command against a remote: with a clean environment, a deadline, and readable errors."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from reconciler.errors import SourceNotFound, SourceUnreachable
from reconciler.foreign_words import strip_variation
from reconciler.source.git_command import GitResult, clean_environment, run_git
from reconciler.source.libgit import OTHER_HASH
from reconciler.source.url import RepositoryAddress

if TYPE_CHECKING:
    from reconciler.settings import Credentials, SourceSettings

_PASSED_VARIABLES = (
    "http_proxy",
    "https_proxy",
    "all_proxy",
    "no_proxy",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "NO_PROXY",
    "GIT_SSL_CAINFO",
    "GIT_SSL_CAPATH",
)
_SETTINGS = ("core.hooksPath=/dev/null", "credential.helper=", "protocol.version=2", "gc.autoDetach=false")
_OPTIONS = tuple(word for setting in _SETTINGS for word in ("-c", setting))
_CREDENTIALS = re.compile(r"://[^/@\s']+@")
REMOTE_WORDS = "remote: "
"""How lines begin that Git has from the other side, such as those of its hooks."""
_UNPRINTABLE = re.compile(r"[^\x20-\x7e\xa0-\u1fff\u2070-\U0010ffff]")
_LONGEST = 300
_NOISE = (
    "Could not read from remote repository",
    "Please make sure you have the correct access rights",
    "and the repository exists",
    "fatal: the remote end hung up unexpectedly",
    "Warning: Permanently added",
)
_GONE = re.compile(
    r"couldn't find remote ref|repository '.*' not found|does not appear to be a git repository"
    r"|no such remote ref|Repository not found|repository not exported"
)


_UNKNOWN_HOST = "Host key verification failed"
_CHANGED_HOST = "REMOTE HOST IDENTIFICATION HAS CHANGED"
_OPEN_KEY = re.compile("UNPROTECTED PRIVATE KEY FILE|bad permissions")
_CERTIFICATE = re.compile("certificate verif|certificate problem", re.IGNORECASE)
_OTHER_HASH = "mismatched algorithms"
_REDIRECTED = re.compile(r"unable to update url base from redirection|returned error: 30\d")


class Remote:
    """The connection to one remote: its address, credential files, and the deadline in seconds."""

    def __init__(self, settings: SourceSettings, address: RepositoryAddress) -> None:
        self.name = settings.name
        self.address = address
        self._timeout = settings.timeout
        self._credentials = settings.credentials
        self._redirects = settings.follow_redirects

    def run(
        self,
        repository: Path,
        arguments: Iterable[str],
        *,
        late: type[SourceUnreachable] = SourceUnreachable,
        watch: Callable[[str], None] | None = None,
    ) -> GitResult:
        """Run ``git ARGUMENTS`` in ``repository``. Raises ``late`` after the deadline and ends all processes.

        ``watch`` gets what Git writes to standard error, in pieces.

        Raises SourceUnreachable if a file of the credentials cannot be read.
        Neither the command line nor the environment contains a secret: git calls a credential helper, which reads the
        file, and only for the origin of the url. So a redirect to another host learns nothing.
        """
        redirects = ("-c", f"http.followRedirects={'initial' if self._redirects else 'false'}")
        command = ["git", *_OPTIONS, *redirects, *self._credential_options(), *arguments]
        answer = run_git(command, repository, self._environment(repository), self._timeout, watch)
        if answer is None:
            raise late(f"source {self.name}: {self._place()} did not answer within {self._timeout:g} s")
        return answer

    def failure(self, answer: GitResult) -> SourceNotFound | SourceUnreachable:
        """The error for ``answer``, in git's words without secrets."""
        if not self._redirects and _REDIRECTED.search(answer.errors):
            return SourceUnreachable(
                f"source {self.name}: {self._place()} redirects to another address; name that one in url (it often "
                "ends in .git), or set followRedirects"
            )
        kind = SourceNotFound if _GONE.search(answer.errors) else SourceUnreachable
        advice = self.clean(_advise_login(answer.errors, self.address, self._credentials))
        return kind(f"source {self.name}: {self._place()}: {self.words(answer)}{advice and f'; {advice}'}")

    def words(self, answer: GitResult) -> str:
        """The last useful line of Git's output, cleaned."""
        lines = [line.strip() for line in answer.errors.splitlines()]
        telling = [line for line in lines if line and not any(noise in line for noise in _NOISE)]
        fatal = [line for line in telling if line.startswith(("fatal:", "error:", "! "))]
        return self.clean((fatal or telling or lines or [f"git ended with {answer.code}"])[-1])

    def remote_words(self, answer: GitResult) -> list[str]:
        """What the other side wrote, such as its hooks, line by line and cleaned."""
        lines = answer.errors.splitlines()
        words = [line.removeprefix(REMOTE_WORDS).strip() for line in lines if line.startswith(REMOTE_WORDS)]
        return [self.clean(line) for line in words if line]

    def clean(self, line: str) -> str:
        """``line`` for display: printable, of bounded length, without credentials and what each try has anew."""
        for secret in self._secrets():
            line = line.replace(secret, "***")
        return _UNPRINTABLE.sub("?", strip_variation(_CREDENTIALS.sub("://", line)))[:_LONGEST]

    def _place(self) -> str:
        return _CREDENTIALS.sub("://", self.address.url)

    def _environment(self, repository: Path) -> dict[str, str]:
        passed = {name: os.environ[name] for name in _PASSED_VARIABLES if name in os.environ}
        return (
            passed
            | self._authorities()
            | clean_environment(str(repository), self._protocols())
            | {
                "LC_ALL": "C",
                "GIT_SSH_COMMAND": self._ssh(),
            }
        )

    def _authorities(self) -> dict[str, str]:
        """The variable that names the file of trusted authorities, which is read for each command."""
        path = self._credentials.ca_file
        if path is None:
            return {}
        try:
            path.read_bytes()  # for a file that it cannot read, GnuTLS only says that it failed
        except OSError as fault:
            raise SourceUnreachable(
                f"source {self.name}: the file of authorities {path} cannot be read: {fault.strerror}"
            ) from None
        return {"GIT_SSL_CAINFO": str(path)}

    def _protocols(self) -> str:
        return f"https:{self.address.scheme}" if self._redirects else self.address.scheme

    def _ssh(self) -> str:
        options = ["BatchMode=yes", "StrictHostKeyChecking=yes", f"ConnectTimeout={max(1, int(self._timeout))}"]
        key: list[str] = []
        if self._credentials.known_hosts:
            options += [f'UserKnownHostsFile="{self._credentials.known_hosts}"', "GlobalKnownHostsFile=/dev/null"]
        if self._credentials.key_file:
            options.append("IdentitiesOnly=yes")
            key = ["-i", str(self._credentials.key_file)]
        return shlex.join(["ssh", "-F", os.devnull, *(part for option in options for part in ("-o", option)), *key])

    def _credential_options(self) -> list[str]:
        if not self._secrets() or self.address.scheme not in ("https", "http"):
            return []
        answer = f"printf 'username=%s\\npassword=%s\\n' {shlex.quote(self._credentials.username or 'git')}"
        secret = f'"$(cat -- {shlex.quote(str(self._credentials.token_file))})"'
        helper = f'!answer() {{ test "$1" != get || {answer} {secret}; }}; answer'
        return ["-c", f"credential.{self.address.origin}.helper={helper}"]

    def _secrets(self) -> list[str]:
        if not self._credentials.token_file:
            return []
        try:
            token = self._credentials.token_file.read_text().strip()
        except (OSError, ValueError) as fault:
            reason = fault.strerror if isinstance(fault, OSError) else "it is not text"
            raise SourceUnreachable(
                f"source {self.name}: the token file {self._credentials.token_file} cannot be read: {reason}"
            ) from None
        return [token] if token else []


def _advise_login(errors: str, address: RepositoryAddress, credentials: Credentials) -> str:
    """What to do about the ``errors`` of a Git command for ``address``; "" where they say it themselves."""
    if _OTHER_HASH in errors:
        return f"it {OTHER_HASH}"
    if _CHANGED_HOST in errors:
        return f"its host key is another one than in {_get_known_hosts(credentials)}: ask its owner before you trust it"
    if _UNKNOWN_HOST in errors:
        return (
            f"its host key is not in {_get_known_hosts(credentials)}: get it by `{_write_scan(address.url)}`, compare "
            f"it with what its owner publishes, and put it into {_get_target(credentials)}"
        )
    if credentials.key_file is not None and _OPEN_KEY.search(errors):
        return f"ssh does not use {credentials.key_file}, since others may read it: chmod 600 {credentials.key_file}"
    if _CERTIFICATE.search(errors):
        file = credentials.ca_file
        return (
            f"{file} has no authority that signed its certificate"
            if file is not None
            else "name the file with its authority as credentials.caFile"
        )
    return ""


def _get_known_hosts(credentials: Credentials) -> str:
    return str(credentials.known_hosts or "~/.ssh/known_hosts of the daemon's user")


def _get_target(credentials: Credentials) -> str:
    return "that file" if credentials.known_hosts else "a file that credentials.knownHosts names"


def _write_scan(url: str) -> str:
    """The command that prints the host keys of ``url``, ``ssh://…`` or ``user@host:path``."""
    if "://" not in url:
        return shlex.join(["ssh-keyscan", url.partition(":")[0].rpartition("@")[2]])
    parts = urlsplit(url)
    port = ["-p", str(parts.port)] if parts.port else []
    return shlex.join(["ssh-keyscan", *port, parts.hostname or ""])
