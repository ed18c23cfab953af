"""What one call works with: its settings by flag, environment and profile, the client, and the output."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote, urlencode
from uuid import uuid4

from reconciler.errors import UsageError
from reconciler.model.platform import VARIABLE_PREFIX
from reconciler.model.revision import shorten_id
from reconciler.platform_cli.profiles import Profile, Profiles, change_profiles, load_profiles, profiles_path
from reconciler.platform_cli.references import SOURCE, ResourceReference, parse_reference
from reconciler.platform_cli.table.kinds import KINDS
from reconciler.times import format_iso_time

if TYPE_CHECKING:
    from reconciler.platform_cli.client import ApiAnswer, ApiEndpoint, Client
    from reconciler.platform_cli.keyring import TokenKeyring
    from reconciler.platform_cli.lists.choosing import ListChoice
    from reconciler.platform_cli.output import Output

MAX = 50
REVIEW_BRANCH = "reconciler/change-"
"""How the branch of a change begins that becomes one only after a review."""
_SUSPENDED = "suspended"
"""The hold of a step that no approval releases."""
_SOURCE_PARAMETER = "?source="
_MOST_STEPS = 5
_MOST_NAMES = 200


class Session:
    """The common ``options`` of a call, those that are missing or None being unset, and what follows from them.

    With ``seconds`` a keyring has so long to answer, and a credential that is about to end is not renewed.
    """

    def __init__(
        self, options: Mapping[str, Any], environ: Mapping[str, str] = os.environ, *, seconds: float = 0.0
    ) -> None:
        self._options = options
        self._seconds = seconds
        self._token: str | None = None
        self._address = ""
        self.reviews = 0
        self._approves = False
        self.environ = environ

    @cached_property
    def profiles_file(self) -> Any:
        """Where the profiles are."""
        return profiles_path(self.environ)

    @cached_property
    def profiles(self) -> Profiles:
        """All profiles. Raises UsageError."""
        return load_profiles(self.profiles_file)

    @cached_property
    def profile_name(self) -> str:
        """The profile that this call uses. Raises UsageError if one was named that does not exist."""
        named = self._options.get("profile") or self.environ.get(_get_variable_name("profile"))
        name = str(named or self.profiles.current)
        if named and name not in self.profiles.profiles:
            names = ", ".join(sorted(self.profiles.profiles)) or "none"
            raise UsageError(f"there is no profile {name!r} (there are: {names}). Make it: platform login {name}")
        return name

    @cached_property
    def profile(self) -> Profile:
        """The defaults of the profile."""
        return self.profiles.profiles.get(self.profile_name, Profile())

    def use_profile(self, name: str) -> None:
        """Let this call use a profile, which may be new."""
        self.__dict__["profile_name"] = name

    def use_token(self, token: str) -> None:
        """Let this call use a credential, "" for none, whatever its settings have."""
        self._token = token

    def use_endpoint(self, url: str) -> None:
        """Let this call use an address, whatever its settings have; "" for theirs."""
        self._address = url

    def use_approval(self) -> None:
        """Let this call approve the steps of its changes that wait, where nothing else waits with them."""
        self._approves = True

    def by_flag(self, name: str) -> str:
        """A common option by flag; "" without one."""
        return str(self._options.get(name) or "")

    def setting(self, name: str) -> str:
        """A common option by flag, else environment variable, else profile; "" if none has it."""
        value = self._options.get(name) or self.environ.get(_get_variable_name(name))
        return str(value or getattr(self.profile, name))

    def _origin(self, name: str) -> str:
        """What a common option comes from: its flag or its environment variable; "" for the profile."""
        if self._options.get(name):
            return f"--{name}"
        return _get_variable_name(name) if self.environ.get(_get_variable_name(name)) else ""

    @cached_property
    def org(self) -> str:
        """The org: the one that is set, else the only one of the daemon. Raises UsageError without both."""
        if text := self.setting("org"):
            return text
        if self._address or self.setting("endpoint") or self._local_socket:
            return str(self.client.get("/whoami")["org"])
        # Without a daemon here, the commands that work offline need the org alone.
        raise UsageError(f"name the org: --org, PLATFORM_ORG, or platform profile update {self.profile_name} --org ORG")

    @cached_property
    def gvc(self) -> str:
        """The GVC. Raises UsageError if it is not set."""
        if text := self.setting("gvc"):
            return text
        raise UsageError(f"name the GVC: --gvc, PLATFORM_GVC, or platform profile update {self.profile_name} --gvc GVC")

    @property
    def max(self) -> int:
        """The most records of a list; 0: all, as without --max for programs. Raises UsageError."""
        text = self._options.get("max_")
        if text is None:
            return MAX if self.output.is_text else 0
        try:
            return max(0, int(text))
        except ValueError:
            raise UsageError(f"--max {text}: write a whole number; below 1 shows all") from None

    @property
    def verbose(self) -> bool:
        """Whether to show more."""
        return bool(self._options.get("verbose"))

    @cached_property
    def client(self) -> Client:
        """Requests to the API. Raises UsageError without an endpoint."""
        from reconciler.platform_cli.client import Client

        named = self._token
        if named is None:
            named = self._options.get("token") or self.environ.get(_get_variable_name("token"))
        token = self.stored_token() if named is None else str(named)
        endpoint = self._endpoint()._replace(token=token, token_origin=self._origin("token"))
        return Client(endpoint, debug=bool(self._options.get("debug")), verbose=self.verbose)

    def stored_token(self) -> str:
        """The token of the profile, renewed and stored if it is about to end; "" without one.

        Raises UsageError, and KeyringError.
        """
        profile = self.profile
        if profile.keyring:
            profile = self.keyring.with_tokens(self.profile_name, profile)
        if profile.refresh_token and not self._seconds:
            from reconciler.platform_cli.refreshing import is_ending, renew_token

            if is_ending(profile):
                profile = renew_token(self.profiles_file, self.keyring, self.profile_name, self._endpoint())
        return profile.token

    @cached_property
    def keyring(self) -> TokenKeyring:
        """Where the tokens of profiles are that are not in the file."""
        from reconciler.platform_cli.keyring import UNLOCK_SECONDS, TokenKeyring

        return TokenKeyring(self.profiles_file, self.environ, self._seconds or UNLOCK_SECONDS)

    @cached_property
    def _local_socket(self) -> str:
        from reconciler.platform_cli.client import find_local_socket

        return find_local_socket(self.environ)

    def _endpoint(self) -> ApiEndpoint:
        """Where the API is, without a credential. Raises UsageError."""
        from reconciler.platform_cli.client import ApiEndpoint

        url = (self._address or self.setting("endpoint") or self._local_socket).rstrip("/")
        if not url:
            text = "name the address of the API: --endpoint URL, PLATFORM_ENDPOINT, or platform login --endpoint URL"
            raise UsageError(text)
        insecure = bool(self._options.get("insecure"))
        return ApiEndpoint(url, "", insecure, self.profile_name, url_origin=self._origin("endpoint"))

    def change_profiles(self, change: Callable[[Profiles], Profiles]) -> None:
        """Replace the profiles by what ``change`` makes of those that are stored now. Raises UsageError."""
        change_profiles(self.profiles_file, change)

    @cached_property
    def output(self) -> Output:
        """Prints in the format of this call."""
        from reconciler.platform_cli.output import Output

        options = self._options
        format_, times = str(options.get("output") or "text"), str(options.get("ts") or "iso")
        colour = options.get("color") is not False and not self.environ.get("NO_COLOR")
        return Output(format_, times, colour=colour, choice=self._choice, headings=not options.get("no_headers"))

    @property
    def _choice(self) -> ListChoice:
        """What is shown of lists. Raises UsageError."""
        from reconciler.platform_cli.durations import past_seconds
        from reconciler.platform_cli.lists.choosing import ListChoice

        options = self._options
        since = options.get("since")
        at = past_seconds(str(since), "--since") if since else None
        return ListChoice(str(options.get("selector") or ""), str(options.get("sort_by") or ""), at)

    def list_query(self) -> dict[str, str]:
        """The options of lists as parameters of the API, which chooses by itself there. Raises UsageError."""
        choice = self._choice
        limit = str(max(0, int(self.max))) if self._options.get("max_") is not None and self.max else ""
        since = "" if choice.since is None else format_iso_time(choice.since)
        wide = "true" if self.output.format == "wide" else ""
        return {"selector": choice.selector, "sort": choice.sort, "limit": limit, "since": since, "wide": wide}

    def path(self, kind: str, ref: str = "") -> str:
        """The path of a resource by its name, link or key, or of the collection of ``kind``. Raises UsageError."""
        if kind == "org" and "/" not in ref:
            return f"/org/{quote(ref or self.org, safe='')}"
        if not ref:
            return ResourceReference(self.org, kind, self.gvc if KINDS[kind].in_gvc else "", "").path.rstrip("/")
        reference = self.find(ref, kind)
        if reference.kind != kind:
            raise UsageError(f"{ref} is not a link to a {kind}")
        return reference.path

    def find(self, ref: str, kind: str = "") -> ResourceReference:
        """The resource with a link or a key, or with ``kind`` also with a name. Raises UsageError."""
        return parse_reference(ref, lambda: self.org, lambda: self.gvc, kind)

    def path_of_target(self, text: str) -> str:
        """The path of a source, named alone or as ``source/NAME``, or of a resource. Raises UsageError."""
        name = text.removeprefix(f"{SOURCE}/")
        if "/" in name:
            return self.find(name).path
        return f"/org/{quote(self.org, safe='')}/{SOURCE}/{quote(name, safe='')}"

    def change(self, method: str, path: str, body: Any = None, *, seen: str = "", **query: str) -> ApiAnswer:
        """A change of a resource, which may be repeated without harm; of what the ETag ``seen`` names, if any.

        Raises ApiError.
        """
        from reconciler.platform_cli.refusals import ApiError

        try:
            answer = self.client.request(method, path, body=body, query=query, key=str(uuid4()), seen=seen)
        except ApiError as error:
            if _SOURCE_PARAMETER not in str(error):
                raise
            # It is a parameter of the API; a manifest in Git needs none.
            hint = f"that is: platform rest {method.lower()} '{path}{_SOURCE_PARAMETER}NAME' --file FILE"
            raise ApiError(f"{error}; {hint}", error.status, error.code, error.findings) from None
        change = (answer.body or {}).get("change") or {}
        if str(change.get("branch", "")).startswith(REVIEW_BRANCH):
            self.reviews += 1
            branch = change["branch"]
            way = f"open it: {change['review']}" if change.get("review") else f"merge it: git merge {branch}"
            self.output.note(f"nothing changes before a review of the branch {branch}; {way}")
        elif change:
            # A new resource has its name in the body, and its path is that of the collection.
            target = f"{path}/{quote(body['name'], safe='')}" if method == "POST" and "name" in body else path
            self._show_holds(change.get("plan") or {}, unquote(target))
        return answer

    def _show_holds(self, plan: Mapping[str, Any], path: str) -> None:
        """Show which steps for the resource at ``path``, and in it, wait, and what releases them."""
        steps = [step for step in plan.get("steps", ()) if step["hold"] and self._is_at(step["key"], path)]
        suspended = {step["key"]: step["action"] for step in steps if step["hold"] == _SUSPENDED}
        for key, action in [*suspended.items()][:_MOST_STEPS]:
            self.output.note(f"{action} {key} waits until it is resumed: platform resume {key}")
        others = dict.fromkeys(f"{step['action']} {step['key']}" for step in steps if step["hold"] != _SUSPENDED)
        if others and not (self._approves and self._approve(plan["hold_digest"], path)):
            more = f" and {len(others) - _MOST_STEPS} more" if len(others) > _MOST_STEPS else ""
            what = f"{', '.join([*others][:_MOST_STEPS])}{more} {'wait' if len(others) > 1 else 'waits'}"
            self.output.note(f"{what} for an approval: platform approve {shorten_id(plan['hold_digest'])}")

    def _approve(self, digest: str, path: str) -> bool:
        """Approve the steps that wait; False if others wait with them, or this caller may not. Raises ApiError."""
        from reconciler.platform_cli.refusals import UNUSABLE, ApiError

        org = f"/org/{quote(self.org, safe='')}"
        try:
            # The change shows what its caller may view; a digest is of all steps.
            steps = self.client.get(f"{org}/-plan/{digest}")["steps"]
            if any(step["hold"] and not self._is_at(step["key"], path) for step in steps):
                return False
            self.client.request("POST", f"{org}/-approve", body={"digest": digest})
        except ApiError as error:
            if error.status in UNUSABLE:
                raise
            return False
        return True

    def _is_at(self, key: str, path: str) -> bool:
        """Whether the resource ``key`` is the one at the path ``path``, or in that GVC."""
        kind, *names = key.split("/")
        if path.endswith("/-apply"):
            return True
        if kind == "org":
            return path == f"/org/{names[0]}"
        if names[1:]:
            gvc = f"/org/{self.org}/gvc/{names[0]}"
            return path in (gvc, f"{gvc}/{kind}/{names[1]}")
        return path == f"/org/{self.org}/{kind}/{names[0]}"

    def names(self, kind: str, prefix: str, seconds: float) -> list[str]:
        """The names of resources of ``kind``, or of sources, that begin with ``prefix``.

        There are none if the server does not answer in time.
        """
        query = urlencode({"fields": "name", "limit": _MOST_NAMES, "namePrefix": prefix})
        path = f"/org/{quote(self.org, safe='')}/{SOURCE}" if kind == SOURCE else f"{self.path(kind)}?{query}"
        page = self.client.once(path, seconds)
        try:
            return sorted(value["name"] for value in page["items"] if value["name"].startswith(prefix))
        except (KeyError, TypeError):
            return []

    def nearest(self, kind: str, refs: Iterable[str], seconds: float) -> str:
        """A hint at the resource of ``kind``, or at its GVC, that names which do not exist may mean; "" without one.

        The server has ``seconds`` for each name.
        """
        for ref in refs:
            # A link has its own GVC, and need not be one of this call.
            if "/" in ref:
                return ""
            if near := self._nearest_name(kind, ref, seconds):
                return f"did you mean {near!r}?"
        if KINDS[kind].in_gvc and (near := self._nearest_name("gvc", self.gvc, seconds)):
            return f"did you mean the GVC {near!r}?"
        return ""

    def _nearest_name(self, kind: str, name: str, seconds: float) -> str:
        """The name that ``name`` may be meant to be; "" if there is none, or if ``name`` exists."""
        from reconciler.model.suggest import find_closest_word

        candidates = self.names(kind, name[:1], seconds)
        return "" if name in candidates else find_closest_word(name, candidates)

    def items(self, path: str, query: Mapping[str, Any] | None = None) -> Iterator[list[Any]]:
        """The pages of a collection, as many as ``--max`` allows. Raises ApiError."""
        return self.client.items(path, self.max, query)

    def close(self) -> None:
        """Close what is open."""
        if "client" in self.__dict__:
            self.client.close()


def _get_variable_name(name: str) -> str:
    """The environment variable of a common option."""
    return f"{VARIABLE_PREFIX}{name.upper()}"
