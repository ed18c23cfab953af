"""Verifies signatures of commits and tags with Git, in a temporary repository with only the objects in question."""

from __future__ import annotations

import hashlib
import re
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pygit2
from pygit2.enums import ObjectType

from reconciler.errors import SourceUnverified
from reconciler.source.ancestry import commits_since
from reconciler.source.git_command import GitResult, clean_environment, run_git
from reconciler.source.libgit import lookup_name

if TYPE_CHECKING:
    from reconciler.settings import SourceSettings, VerifySettings

BATCH = 200
"""The number of commits that one command verifies."""

_GPG_CONF = "trust-model always\nno-auto-key-retrieve\nno-autostart\ndisable-dirmngr\n"
_PROGRAMS = {
    "gpg.program": "gpg",
    "gpg.openpgp.program": "gpg",
    "gpg.ssh.program": "ssh-keygen",
    "gpg.x509.program": "false",
}
_ARMOUR = re.compile(rb"^(?:gpgsig )?-----BEGIN (SSH SIGNATURE|PGP SIGNATURE|PGP MESSAGE|SIGNED MESSAGE)-----", re.M)
_VERDICTS = (
    (r"key has expired", "the key was no longer valid when it was made"),
    (r"key is not yet valid", "the key was not yet valid when it was made"),
    (r"REVKEYSIG (\S+)", "the key is revoked"),
    (r"EXPKEYSIG (\S+)", "the key has expired"),
    (r"EXPSIG (\S+)", "the signature has expired"),
    (r"BADSIG (\S+)|incorrect signature|invalid format", "the signature does not match the content"),
    (r"NO_PUBKEY (\S+)|ERRSIG (\S+)", "the keyring has no such key"),
    (r"not permitted for use in signature namespace", "the key is allowed for other purposes alone"),
    (r"No principal matched", "no allowed signer has such a key"),
)
_KEY = re.compile(
    r"(?:NO_PUBKEY|EXPKEYSIG|REVKEYSIG|BADSIG|EXPSIG|ERRSIG) ([0-9A-F]{8,40})|key (SHA256:[A-Za-z0-9+/]{43})"
)


class Trust(msgspec.Struct, frozen=True):
    """The current content of the operator's files."""

    signers: bytes
    revoked: bytes
    keyring: bytes

    @property
    def digest(self) -> str:
        """Changes when one of the files does."""
        return hashlib.sha256(msgspec.json.encode(self)).hexdigest()


class Signatures:
    """Verdicts on the commits and tags of one source, cached as long as the trusted keys stay the same.

    Git runs in an empty repository into which only the signed objects are copied: the configuration, replacements and
    attributes of the source's own repository have no effect.
    """

    def __init__(self, source: SourceSettings, settings: VerifySettings) -> None:
        self._source = source
        self._settings = settings
        self._trusted = ""
        self._verdicts: dict[str, str] = {}

    def check(self, git: pygit2.Repository, target: str, ref: str) -> None:
        """Raises SourceUnverified if the commit or tag ``target`` is not signed as the settings require.

        With ``signed: tag`` a commit is accepted if a signed tag in the repository points to it. A tag that was found
        through ``ref`` ("" for none) must be signed under that name; otherwise an old release could be presented as a
        new one.
        """
        git_object = git[target]
        if self._settings.signed != "tag":
            self._require(git, [str(git_object.peel(pygit2.Commit).id)])
            return
        if ref.startswith("refs/tags/") and not _is_tag_of(
            git[git.lookup_reference(lookup_name(ref)).resolve().target], ref
        ):
            raise self._refusal(f"tag {target[:12]}", "the tag was created under another name")
        if isinstance(git_object, pygit2.Tag):
            self._require(git, [target])
        elif tags := list(_tags_of(git, target)):
            self._require(git, tags[:1])
        else:
            raise self._refusal(f"commit {target[:12]}", "no annotated tag points to it")

    def check_since(self, git: pygit2.Repository, previous: str, commit: str) -> None:
        """With ``signed: history``, raises SourceUnverified for the first unsigned commit since ``previous``.

        Without a previous commit (``""``, or one that Git has removed) only ``commit`` itself is checked.
        """
        if self._settings.signed != "history" or not previous or previous not in git:
            return
        self._require(git, commits_since(git.odb, previous, commit))

    def _require(self, git: pygit2.Repository, ids: Sequence[str]) -> None:
        trust = self._trust()
        if trust.digest != self._trusted:
            self._trusted, self._verdicts = trust.digest, {}
        for start in range(0, len(ids), BATCH):
            batch = ids[start : start + BATCH]
            self._judge(git, [id_ for id_ in batch if id_ not in self._verdicts], trust)
            bad = next((id_ for id_ in batch if self._verdicts.get(id_)), None)
            if bad is not None:
                raise self._refusal(f"{_get_object_kind(git, bad)} {bad[:12]}", self._verdicts[bad])

    def _judge(self, git: pygit2.Repository, ids: Sequence[str], trust: Trust) -> None:
        """Determine the verdicts on ``ids``: in one command if all are good, else one by one up to the first bad."""
        if not ids:
            return
        try:
            with _open_scratch_directory(git, ids, trust) as path:
                if len(ids) > 1 and self._ask(path, "commit", ids).code == 0:
                    self._verdicts |= dict.fromkeys(ids, "")
                    return
                for id_ in ids:
                    answer = self._ask(path, _get_object_kind(git, id_), [id_])
                    self._verdicts[id_] = "" if answer.code == 0 else self._words(git, id_, answer, path)
                    if self._verdicts[id_]:
                        return
        except OSError as error:
            raise self._refusal(ids[0][:12], f"it cannot be checked: {error.strerror or error}") from None

    def _ask(self, path: Path, kind: str, ids: Iterable[str], *, revoked: bool = True) -> GitResult:
        options = [part for name, program in _PROGRAMS.items() for part in ("-c", f"{name}={program}")]
        options += ["-c", f"gpg.ssh.allowedSignersFile={path}/signers", "-c", "gpg.minTrustLevel=undefined"]
        if self._settings.revoked_keys is not None and revoked:
            options += ["-c", f"gpg.ssh.revocationFile={path}/revoked"]
        command = ["git", "--git-dir", str(path / "git"), *options, f"verify-{kind}", "--raw", *ids]
        answer = run_git(command, path, _build_environment(path), self._source.timeout)
        if answer is None:
            raise self._refusal(kind, f"Git did not verify it within {self._source.timeout:g} s")
        return answer

    def _words(self, git: pygit2.Repository, id_: str, answer: GitResult, path: Path) -> str:
        """Why verification failed. Raises SourceUnverified if a program is missing: that is not a verdict."""
        if "cannot run" in answer.errors or "cannot exec" in answer.errors:
            raise self._refusal("a signature", f"{answer.errors.splitlines()[0]}; install it")
        armour = _ARMOUR.search(git[id_].read_raw())
        if armour is None:
            return "it is not signed"
        form = armour[1].partition(b" ")[0]
        if form == b"SSH" and self._settings.allowed_signers is None:
            return "it is signed with ssh, and the settings name no allowedSigners"
        if form == b"PGP" and self._settings.gpg_keyring is None:
            return "it is signed with OpenPGP, and the settings name no gpgKeyring"
        if form == b"SSH" and (other := self._ask(path, _get_object_kind(git, id_), [id_], revoked=False)).code == 0:
            return f"revokedKeys rules its key out{_format_named_key(other)}"
        verdict = next((words for pattern, words in _VERDICTS if re.search(pattern, answer.errors)), "")
        return (verdict or "Git does not find it good") + _format_named_key(answer)

    def _trust(self) -> Trust:
        paths = (self._settings.allowed_signers, self._settings.revoked_keys, self._settings.gpg_keyring)
        return Trust(*map(self._content, paths))

    def _content(self, path: Path | None) -> bytes:
        try:
            return path.read_bytes() if path is not None else b""
        except OSError as error:
            raise self._refusal("a commit", f"{path} cannot be read: {error.strerror}") from None

    def _refusal(self, what: str, why: str) -> SourceUnverified:
        return SourceUnverified(
            f"source {self._source.name}: the signature of {what} is not accepted: {why}; nothing of it is read"
        )


@contextmanager
def _open_scratch_directory(git: pygit2.Repository, ids: Iterable[str], trust: Trust) -> Iterator[Path]:
    """A temporary directory with the trusted keys and a repository that contains only the objects ``ids``."""
    with tempfile.TemporaryDirectory(prefix="reconciler-") as name:
        path = Path(name)
        (path / "signers").write_bytes(trust.signers)
        (path / "revoked").write_bytes(trust.revoked)
        copy = pygit2.init_repository(str(path / "git"), bare=True)
        for id_ in ids:
            git_object = git[id_]
            copy.write(git_object.type, git_object.read_raw())
        home = path / "gpg"
        home.mkdir(mode=0o700)
        (home / "gpg.conf").write_text(_GPG_CONF)
        if trust.keyring:
            (home / "keys").write_bytes(trust.keyring)
            # gpg skips keys that it cannot read; then no signature is good, and that is reported.
            run_git(["gpg", "--batch", "--quiet", "--import", str(home / "keys")], path, _build_environment(path), 60.0)
        yield path


def _build_environment(path: Path) -> dict[str, str]:
    return clean_environment(str(path)) | {"GNUPGHOME": str(path / "gpg"), "LC_ALL": "C"}


def _format_named_key(answer: GitResult) -> str:
    """The key in Git's message, in parentheses."""
    key = _KEY.search(answer.errors)
    return f" ({key[1] or key[2]})" if key else ""


def _get_object_kind(git: pygit2.Repository, id_: str) -> str:
    return "tag" if git[id_].type == ObjectType.TAG else "commit"


def _tags_of(git: pygit2.Repository, commit: str) -> Iterator[str]:
    """Ids of the annotated tags that point to ``commit`` under their own names, sorted by name."""
    for name in sorted(ref for ref in git.references if ref.startswith("refs/tags/")):
        git_object = git[git.references[lookup_name(name)].resolve().target]
        if (
            isinstance(git_object, pygit2.Tag)
            and _is_tag_of(git_object, name)
            and str(git_object.peel(pygit2.Commit).id) == commit
        ):
            yield str(git_object.id)


def _is_tag_of(git_object: pygit2.Object, ref: str) -> bool:
    """Whether ``git_object`` was created under the name ``ref``; only annotated tags have a name of their own."""
    return not isinstance(git_object, pygit2.Tag) or ref == f"refs/tags/{git_object.name}"
