"""Profiles: the defaults of the common options, in a file of this user."""

from __future__ import annotations

from functools import reduce
from typing import Any

from msgspec.structs import replace

from reconciler.errors import UsageError
from reconciler.platform_cli.keyring import KeyringError
from reconciler.platform_cli.output import at
from reconciler.platform_cli.profiles import Profile, Profiles
from reconciler.platform_cli.session import Session

_HIDDEN = "[stored]"
SETTABLE = ("org", "gvc", "endpoint", "token")


def get(session: Session, ref: tuple[str, ...]) -> None:
    """List profiles, or show some; tokens are not shown."""
    names = ref or tuple(sorted(session.profiles.profiles))
    columns = {
        "NAME": at("name"), "ORG": at("org"), "GVC": at("gvc"), "ENDPOINT": at("endpoint"), "TOKEN": at("token"),
        "DEFAULT": at("default"),
    }  # fmt: skip
    session.output.documents([[_shown(session, name) for name in names]], columns, "profile")


def _shown(session: Session, name: str) -> dict[str, Any]:
    profile = find_profile(session, name)
    shown = {"name": name, **{each: getattr(profile, each) for each in SETTABLE}}
    return {**shown, "token": _HIDDEN if profile.has_token else "", "default": name == session.profiles.current}


def update(session: Session, ref: str) -> None:
    """Set the common options of this call as defaults of a profile, which is made if it does not exist."""
    changed: dict[str, Any] = {name: value for name in SETTABLE if (value := session.by_flag(name))}
    login = {"refresh_token": "", "expires": 0.0, "keyring": False} if "token" in changed else {}
    if login:
        forget(session, ref)
    session.change_profiles(
        lambda found: found.having(ref, replace(found.profiles.get(ref, Profile()), **changed, **login))
    )
    session.output.line(f"profile {ref}: {', '.join(changed) or 'nothing'} set")


def set_default(session: Session, ref: str) -> None:
    """Choose the profile for commands that name none."""
    find_profile(session, ref)
    session.change_profiles(lambda found: replace(found, current=ref))
    session.output.line(f"the default profile is {ref}")


def delete(session: Session, ref: tuple[str, ...]) -> None:
    """Delete profiles with their tokens; silent on success."""
    for name in ref:
        find_profile(session, name)
        forget(session, name)
    session.change_profiles(lambda found: reduce(Profiles.without, ref, found))


def token(session: Session, ref: str | None) -> None:
    """Print the token of a profile, for other programs; one that is about to end is renewed first."""
    name = ref or session.profile_name
    find_profile(session, name)
    session.use_profile(name)
    found = session.stored_token()
    if not found:
        raise UsageError(f"the profile {name!r} has no token: platform login {name}")
    session.output.line(found)


def forget(session: Session, name: str) -> None:
    """Remove the tokens of a profile from the keyring, if it has them."""
    if session.profiles.profiles.get(name, Profile()).keyring:
        try:
            session.keyring.remove(name)
        except KeyringError as error:
            session.output.note(f"the tokens of the profile {name} stay in the keyring: {error}")


def find_profile(session: Session, name: str) -> Profile:
    """The profile with a name. Raises UsageError if there is none."""
    found = session.profiles.profiles.get(name)
    if found is None:
        from reconciler.model.suggest import closest

        near = closest(name, session.profiles.profiles)
        hint = f"; did you mean {near!r}?" if near else f". Make it: platform profile update {name} --org ORG"
        raise UsageError(f"there is no profile {name!r}{hint}")
    return found
