"""Profiles: the defaults of the common options, in a file of this user."""

from __future__ import annotations

from functools import reduce
from typing import Any

from msgspec.structs import replace

from reconciler.errors import UsageError
from reconciler.platform_cli.keyring import KeyringError
from reconciler.platform_cli.output import make_field_getter
from reconciler.platform_cli.profiles import Profile, Profiles
from reconciler.platform_cli.session import Session

_HIDDEN = "[stored]"
SETTABLE = ("org", "gvc", "endpoint", "token")


def get(session: Session, ref: tuple[str, ...]) -> None:
    """List profiles, or show some; tokens are not shown."""
    names = ref or tuple(sorted(session.profiles.profiles))
    columns = {
        "NAME": make_field_getter("name"),
        "ORG": make_field_getter("org"),
        "GVC": make_field_getter("gvc"),
        "ENDPOINT": make_field_getter("endpoint"),
        "TOKEN": make_field_getter("token"),
        "DEFAULT": make_field_getter("default"),
    }
    session.output.documents([[_build_profile_item(session, name) for name in names]], columns, "profile")


def _build_profile_item(session: Session, name: str) -> dict[str, Any]:
    profile = find_profile(session, name)
    shown = {"name": name, **{text: getattr(profile, text) for text in SETTABLE}}
    return {**shown, "token": _HIDDEN if profile.has_token else "", "default": name == session.profiles.current}


def update(session: Session, ref: str) -> None:
    """Set the common options of this call as defaults of a profile, which is made if it does not exist."""
    changed: dict[str, Any] = {name: value for name in SETTABLE if (value := session.by_flag(name))}
    login = {"refresh_token": "", "expires": 0.0, "keyring": False} if "token" in changed else {}
    if login:
        delete_tokens(session, ref)
    session.change_profiles(
        lambda profiles: profiles.having(ref, replace(profiles.profiles.get(ref, Profile()), **changed, **login))
    )
    session.output.line(f"profile {ref}: {', '.join(changed) or 'nothing'} set")


def set_default(session: Session, ref: str) -> None:
    """Choose the profile for commands that name none."""
    find_profile(session, ref)
    session.change_profiles(lambda profiles: replace(profiles, current=ref))
    session.output.line(f"the default profile is {ref}")


def delete(session: Session, ref: tuple[str, ...]) -> None:
    """Delete profiles with their tokens; only a person at a terminal is told."""
    for name in ref:
        find_profile(session, name)
        delete_tokens(session, name)
    session.change_profiles(lambda profiles: reduce(Profiles.without, ref, profiles))
    for name in ref:
        session.output.show_person(f"profile {name} deleted")


def token(session: Session, ref: str | None) -> None:
    """Print the token of a profile, for other programs; one that is about to end is renewed first."""
    name = ref or session.profile_name
    find_profile(session, name)
    session.use_profile(name)
    text = session.stored_token()
    if not text:
        raise UsageError(f"the profile {name!r} has no token: platform login {name}")
    session.output.line(text)


def delete_tokens(session: Session, name: str) -> None:
    """Remove the tokens of a profile from the keyring, if it has them."""
    if session.profiles.profiles.get(name, Profile()).keyring:
        try:
            session.keyring.remove(name)
        except KeyringError as error:
            session.output.note(f"the tokens of the profile {name} stay in the keyring: {error}")


def find_profile(session: Session, name: str) -> Profile:
    """The profile with a name. Raises UsageError if there is none."""
    profile = session.profiles.profiles.get(name)
    if profile is None:
        from reconciler.model.suggest import find_closest_word

        near = find_closest_word(name, session.profiles.profiles)
        hint = f"; did you mean {near!r}?" if near else f". Make it: platform profile update {name} --org ORG"
        raise UsageError(f"there is no profile {name!r}{hint}")
    return profile
