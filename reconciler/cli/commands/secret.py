"""`reconciler secret`: encrypt secrets, and edit encrypted ones."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from reconciler.cli.options import load_or_none, settings_option
from reconciler.errors import RefusedError, UsageError
from reconciler.input_files import read_file

if TYPE_CHECKING:
    from reconciler.sops.creation_rules import Creation
    from reconciler.sops.keys import Keyring

IDENTITY_FILE = "SOPS_AGE_KEY_FILE"
"""Variable that names the file with identities, as for sops."""

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_identity_option = click.option(
    "--identity",
    metavar="FILE",
    type=_FILE,
    envvar=IDENTITY_FILE,
    help=f"The identity that decrypts the file; else ${IDENTITY_FILE}, else `secrets.identity` of the settings.",
)


@click.group(epilog="Example: reconciler secret encrypt db.yaml --in-place")
def command() -> None:
    """Encrypt files of secrets for age recipients, edit them, and change their recipients.

    The files have the format of SOPS: sops can open them, and files that sops encrypted for age can be edited here.
    Layout and comments stay. Only the editor sees values, from a directory in memory that no other user can enter.
    """


@command.command(
    short_help="Encrypt the data of secrets.",
    epilog="Example: reconciler secret encrypt db.yaml --recipient age1… --in-place",
)
@click.argument("files", metavar="FILE…", nargs=-1, required=True, type=_FILE)
@click.option("--recipient", "recipients", metavar="KEY", multiple=True, help="age1… or an SSH public key; repeatable.")
@click.option("--in-place", is_flag=True, help="Write to each FILE; else the result is printed.")
@settings_option
def encrypt(settings_file: Path, files: tuple[Path, ...], recipients: tuple[str, ...], in_place: bool) -> None:
    """Encrypt the data of the secrets in each FILE.

    Without --recipient, a .sops.yaml in a directory above sets the recipients and the fields to encrypt: its first
    creation rule that matches. Without one, it is the age identity in `secrets.identity` of the settings. A FILE holds
    secrets only.
    """
    from reconciler.cli.editor import replace_file
    from reconciler.sops.creation_rules import Creation

    if len(files) > 1 and not in_place:
        raise UsageError("several files need --in-place")
    for path in files:
        raw = read_file(path)
        creation = Creation(recipients) if recipients else _rule_for(path, settings_file)
        sealed = _encrypt_file(path, raw, creation)
        if not in_place:
            click.echo(sealed.decode(), nl=False)
            continue
        replace_file(path, raw, sealed)
        click.echo(f"{path}: encrypted for {', '.join(creation.recipients)}")
    if in_place and any(_is_tracked(path) for path in files):
        click.echo("what is in Git already stays readable in its history: give these secrets new values", err=True)


@command.command(
    short_help="Change an encrypted file in an editor.", epilog="Example: EDITOR=nano reconciler secret edit db.yaml"
)
@click.argument("path", metavar="FILE", type=_FILE)
@_identity_option
@settings_option
def edit(settings_file: Path, path: Path, identity: Path | None) -> None:
    """Open the encrypted FILE in an editor and encrypt it again; unchanged values stay as they are.

    The editor is $SOPS_EDITOR, $VISUAL, $EDITOR or vi. FILE is written only if the edited text can be encrypted.
    """
    from reconciler.cli.editor import open_editor, replace_file
    from reconciler.sops.encrypt import SecretFileError, decrypt_file, reencrypt_secrets

    raw = read_file(path)
    try:
        disclosed = decrypt_file(raw, _load_keyring(settings_file, identity))
    except SecretFileError as error:
        raise RefusedError(f"{path} cannot be opened: {error}") from None
    text = disclosed.text
    with open_editor(path.name, text) as versions:
        for text in versions:
            if text == disclosed.text:
                click.echo(f"{path}: unchanged")
                return
            try:
                sealed = reencrypt_secrets(disclosed, text, _get_current_time())
                break
            except SecretFileError as error:
                click.echo(f"{path} cannot be encrypted like this: {error}", err=True)
        else:
            raise RefusedError(f"{path} is unchanged")
    replace_file(path, raw, sealed)
    click.echo(f"{path}: changed")


class _Rotated(NamedTuple):
    """A file before and after."""

    path: Path
    before: bytes
    after: bytes


@command.command(
    short_help="Encrypt files with a new key for other recipients.",
    epilog="Example: reconciler secret rotate db.yaml --add age1… --remove age1…",
)
@click.argument("files", metavar="FILE…", nargs=-1, required=True, type=_FILE)
@click.option("--add", metavar="KEY", multiple=True, help="A recipient to add: age1… or an SSH public key; repeatable.")
@click.option("--remove", metavar="KEY", multiple=True, help="A recipient to remove; repeatable.")
@_identity_option
@settings_option
def rotate(
    settings_file: Path, files: tuple[Path, ...], add: tuple[str, ...], remove: tuple[str, ...], identity: Path | None
) -> None:
    """Encrypt each FILE with a new key, for its recipients plus those to add, minus those to remove.

    A removed recipient may have read the values already: with --remove, change the values too.
    """
    from reconciler.cli.editor import replace_file
    from reconciler.sops.encrypt import SecretFileError
    from reconciler.sops.encrypt import rotate_key as rotated
    from reconciler.sops.keys import KeyringError

    ring = _load_keyring(settings_file, identity)
    done: list[_Rotated] = []
    for path in files:
        raw = read_file(path)
        try:
            done.append(_Rotated(path, raw, rotated(raw, ring, add, remove, _get_current_time())))
        except SecretFileError as error:
            raise RefusedError(f"{path}: {error}; nothing was changed") from None
        except KeyringError as error:
            raise UsageError(f"--add: {error}") from None
    for path, raw, sealed in done:
        replace_file(path, raw, sealed)
        click.echo(f"{path}: encrypted with a new key")


def _is_tracked(path: Path) -> bool:
    """Whether the repository around ``path`` has the file: a commit may have it, too."""
    import pygit2

    directory = pygit2.discover_repository(str(path.parent.resolve()))
    if directory is None:
        return False
    repository = pygit2.Repository(directory)
    if repository.is_bare:
        return False
    relative = os.path.relpath(path.resolve(), Path(repository.workdir).resolve())
    return relative in repository.index


def _encrypt_file(path: Path, raw: bytes, creation: Creation) -> bytes:
    from reconciler.documents.reader import parse_documents
    from reconciler.sops.encrypt import SecretFileError, encrypt_secrets
    from reconciler.sops.keys import KeyringError

    kinds = [
        document.value.get("kind") for document in parse_documents(raw).documents if isinstance(document.value, dict)
    ]
    others = sorted({str(kind) for kind in kinds if kind != "secret"})
    if others:
        raise RefusedError(f"{path}: only secrets are encrypted, and it contains a {others[0][:20]}; split the file")
    try:
        return encrypt_secrets(raw, creation.recipients, creation.manner, _get_current_time())
    except SecretFileError as error:
        raise RefusedError(f"{path} cannot be encrypted: {error}") from None
    except KeyringError as error:
        raise UsageError(f"a recipient of {path}: {error}") from None


def _rule_for(path: Path, settings_file: Path) -> Creation:
    """The first matching rule of the nearest ``.sops.yaml`` above ``path``, else for this host's own identity.

    Raises UsageError where there is neither.
    """
    from reconciler.sops.creation_rules import FILE, Creation, creation_of
    from reconciler.sops.encrypt import SecretFileError

    whole = path.absolute()
    for folder in whole.parents:
        rules = folder / FILE
        if not rules.is_file():
            continue
        try:
            creation = creation_of(read_file(rules), whole.relative_to(folder).as_posix())
        except SecretFileError as error:
            raise UsageError(f"{rules}: {error}") from None
        if creation is None:
            raise UsageError(f"no rule of {rules} fits {path}; name a --recipient")
        return creation
    if own := _find_own_recipients(settings_file):
        return Creation(own)
    raise UsageError(f"no recipient of {path} is known: name a --recipient, or write a {FILE}")


def _find_own_recipients(settings_file: Path) -> tuple[str, ...]:
    """The recipients that the identity in the settings decrypts for; none without such settings, or for an SSH key."""
    from reconciler.secrets.host_files import keyring_of
    from reconciler.sops.keys import recipients_in

    settings = load_or_none(settings_file)
    identities = keyring_of(settings).identities if settings is not None else ()
    return tuple(recipient for text in identities for recipient in recipients_in(text))


def _load_keyring(settings_file: Path, identity: Path | None) -> Keyring:
    """The identities that decrypt a file. Raises UsageError where there are none."""
    from reconciler.secrets.host_files import keyring_of
    from reconciler.sops.keys import Keyring, KeyringError, identities_of

    if identity is not None:
        text = read_file(identity).decode(errors="replace")
        try:
            identities_of(text)
        except KeyringError as error:
            raise UsageError(f"{identity}: {error}") from None
        return Keyring((text,), required=True)
    settings = load_or_none(settings_file)
    if settings is None:
        raise UsageError(f"there is no identity to decrypt it with: set the path of yours in ${IDENTITY_FILE}")
    return keyring_of(settings)


def _get_current_time() -> str:
    from reconciler.clock import SystemClock
    from reconciler.times import format_iso_time

    return format_iso_time(SystemClock().now())
