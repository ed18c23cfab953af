"""Real keys for tests of signatures: ssh and OpenPGP, made once and used to sign commits and tags."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.support.git import ENVIRONMENT, GitRepo
from tests.support.programs import tool


class Keys:
    """Keys below ``path``, each under the name of who holds it; the files that the settings name are there too."""

    def __init__(self, path: Path) -> None:
        path.mkdir()
        self.path = path
        self.signers = path / "allowed signers"
        self.revoked = path / "revoked keys"
        self.keyring = path / "keyring.asc"
        self._home = path / "gnupg"
        self.signers.write_text("")
        self.revoked.write_text("")

    def ssh(self, who: str, options: str = 'namespaces="git"', *, allowed: bool = True) -> str:
        """Make a key for ``who`` and allow it, with ``options``; the public key."""
        tool("ssh-keygen", "openssh-client")
        self._run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", who, "-f", str(self.path / who))
        public = (self.path / f"{who}.pub").read_text()
        if allowed:
            self.signers.write_text(
                f"{self.signers.read_text()}{who}@example.com {options} {public}".replace("  ", " ")
            )
        return public

    def gpg(self, who: str, expires: str = "never") -> str:
        """Make an OpenPGP key for ``who``; its fingerprint. ``export`` puts it into the keyring."""
        tool("gpg", "gnupg")
        self._home.mkdir(mode=0o700, exist_ok=True)
        address = f"{who} <{who}@example.com>"
        self._gpg("--passphrase", "", "--quick-gen-key", address, "ed25519", "sign", expires)
        listed = self._gpg("--with-colons", "--list-keys", f"{who}@example.com")
        return next(line.split(":")[9] for line in listed.splitlines() if line.startswith("fpr"))

    def revoke(self, fingerprint: str) -> None:
        """Revoke an OpenPGP key, by the certificate that was made with it."""
        made = (self._home / "openpgp-revocs.d" / f"{fingerprint}.rev").read_text()
        certificate = self.path / "revocation"
        certificate.write_text(made.replace(":-----BEGIN", "-----BEGIN"))
        self._gpg("--import", str(certificate))

    def export(self, *who: str) -> None:
        """Make the keyring anew, of the keys of ``who``."""
        self.keyring.write_text(self._gpg("--armor", "--export", *(f"{each}@example.com" for each in who)))

    def commit(self, repo: GitRepo, path: str, content: str, who: str = "", *, time: int = 0) -> str:
        """Commit one file on ``main``, signed by ``who`` (``""``: not signed), made at ``time``; the commit's id."""
        before = repo.git("rev-parse", "main")
        tree = repo.git("rev-parse", f"{repo.commit({path: content}, branch='unsigned', parent=before)}^{{tree}}")
        sign = ["-S"] if who else []
        commit = self._signed(repo, who, time, "commit-tree", *sign, "-p", before, "-m", path, tree)
        repo.git("update-ref", "refs/heads/main", commit)
        return commit

    def tag(self, repo: GitRepo, name: str, who: str = "") -> None:
        """Make the annotated tag ``name`` of ``main``, signed by ``who``."""
        self._signed(repo, who, 0, "tag", "--force", "-m", name, *(["-s"] if who else ["-a"]), name, "main")

    def stop(self) -> None:
        """End gpg's agent."""
        if self._home.exists():
            self._run("gpgconf", "--kill", "all")

    def _signed(self, repo: GitRepo, who: str, time: int, *words: str) -> str:
        ssh = (self.path / who).is_file()
        key = str(self.path / who) if ssh else f"{who}@example.com"
        options = ["-c", f"gpg.format={'ssh' if ssh else 'openpgp'}", "-c", f"user.signingkey={key}"] if who else []
        when = {"GIT_COMMITTER_DATE": f"{time} +0000"} if time else {}
        return self._run("git", "-C", str(repo.path), *options, *words, **when)

    def _gpg(self, *words: str) -> str:
        return self._run("gpg", "--batch", "--quiet", *words)

    def _run(self, *command: str, **environ: str) -> str:
        environment = ENVIRONMENT | {"GNUPGHOME": str(self._home)} | environ
        ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert ended.returncode == 0, (command, ended.stderr)
        return ended.stdout.strip()
