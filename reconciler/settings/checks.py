"""Rules for the settings as a whole, beyond single fields."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from reconciler.model.finding import Pointer
from reconciler.model.key import Key
from reconciler.model.rule import error_rule
from reconciler.settings.types import IngressSettings, StatusSettings, is_local
from reconciler.times import is_time_zone

RULES = (
    error_rule(
        "duplicate-name",
        "Each source in the settings has a unique name.",
        "Records, conditions and commands distinguish sources by their names.",
        "docs/settings.md#settings",
    ),
    error_rule(
        "status-branch",
        "A source writes its status to a branch that no other source writes or follows.",
        "Two writers would delete each other's files, and a follower would read status as manifests.",
        "docs/settings.md#settings",
    ),
    error_rule(
        "secrets-directory",
        "The directory for secrets of a source is not inside that of another source.",
        "Users with push access to the other source could use every file in it.",
        "docs/settings.md#settings",
    ),
    error_rule(
        "ingress",
        "Each ingress has HAProxy, valid addresses, and ports of its own.",
        "The built-in data plane knows no host names, and of two programs at one port only one gets the requests.",
        "docs/settings.md#settings",
    ),
    error_rule(
        "api-tls",
        "The HTTP API has TLS at an address that other machines reach.",
        "Every request carries a credential, and the network between would see it.",
        "docs/settings.md#settings",
    ),
    error_rule(
        "api-login",
        "Logins return to an address with https, and token exchange names a repository or its owner.",
        "Without them, the network could see a login, or jobs of other people could be your service account.",
        "docs/settings.md#settings",
    ),
    error_rule(
        "api-proxies",
        "The proxies that are trusted are some addresses, and the PROXY protocol has such a proxy.",
        "Whoever is trusted can name any address as that of a client, in the audit log too.",
        "docs/settings.md#settings",
    ),
    error_rule(
        "api-webhooks",
        "A webhook has one way to know its sender: a secret, or OpenID Connect.",
        "Without one, anybody could make the daemon read; with two, the weaker one would count.",
        "docs/settings.md#settings",
    ),
    error_rule(
        "api-metrics",
        "Metrics of resources are for keys of resources.",
        "A key of another form would have no metrics, and an alert about them would never fire.",
        "docs/settings.md#settings",
    ),
    error_rule(
        "notifications",
        "Rules of notifications have names of their own, and name channels and sources that there are.",
        "A rule for a channel or a source that does not exist would never send anything.",
        "docs/settings.md#settings",
    ),
)
"""Rules for the settings as a whole, beyond single fields."""


OWNER_CLAIMS = {
    "https://token.actions.githubusercontent.com": (
        "repository",
        "repository_id",
        "repository_owner",
        "repository_owner_id",
        "sub",
    ),
    "https://gitlab.com": ("project_path", "project_id", "namespace_path", "namespace_id", "sub"),
}
"""Issuers that serve everybody → the claims that name the repository or its owner."""


class _Port(NamedTuple):
    """A port that the ingress of a location has at an address."""

    address: IPv4Address | IPv6Address
    number: int
    owner: str


class SettingsFault(NamedTuple):
    """One fault: its rule, the value at which it is, a message, and a suggestion."""

    rule: str
    message: str
    at: Pointer
    suggestion: str


def settings_faults(value: dict[str, Any], base: Path) -> list[SettingsFault]:
    """The faults of settings that are as the schema wants them; relative paths start at ``base``."""
    sources = value["sources"]
    faults = (_repeated_names(sources), _shared_branches(sources, base), _nested_directories(sources, base))
    sections = (_ingress_faults(value.get("locations", {})), _api_faults(value.get("api")), _notification_faults(value))
    return [*chain.from_iterable(faults), *chain.from_iterable(sections)]


def _repeated_names(sources: list[dict[str, Any]]) -> Iterator[SettingsFault]:
    seen: set[str] = set()
    for position, source in enumerate(sources):
        if source["name"] in seen:
            at = ("sources", position, "name")
            message = f"two sources are named `{source['name']}`"
            yield SettingsFault("duplicate-name", message, at, "give each a name of its own")
        seen.add(source["name"])


def _shared_branches(sources: list[dict[str, Any]], base: Path) -> Iterator[SettingsFault]:
    """Status branches that two sources of one repository share, or that one of them follows."""
    followed = {
        (_normalize_repository_url(source["url"], base), source.get("branch") or "main"): source["name"]
        for source in sources
        if not source.get("tag") and not source.get("commit")
    }
    written: dict[tuple[str, str], str] = {}
    for position, source in enumerate(sources):
        name, status = source["name"], source.get("status", {})
        if source.get("readOnly") or not (is_local(source["url"]) or status.get("push", True)):
            continue
        mark = (_normalize_repository_url(source["url"], base), status.get("branch", StatusSettings().branch))
        at: Pointer = ("sources", position, "status", "branch") if "branch" in status else ("sources", position)
        advice = f"give `{name}` another, such as `status: {{branch: {StatusSettings().branch}-{name}}}`"
        if mark in followed:
            what = f"the status of source `{name}` cannot go to `{mark[1]}`, the branch that `{followed[mark]}` follows"
            yield SettingsFault("status-branch", what, at, advice)
        elif mark in written:
            what = f"sources `{written[mark]}` and `{name}` would write their status to one branch, `{mark[1]}`"
            yield SettingsFault("status-branch", what, at, advice)
        written.setdefault(mark, name)


def _nested_directories(sources: list[dict[str, Any]], base: Path) -> Iterator[SettingsFault]:
    """Directories for secrets that are inside one of another source; several sources may name the same directory."""
    named = [(position, source.get("secrets", {}).get("directory")) for position, source in enumerate(sources)]
    directories = [(position, (base / name).resolve()) for position, name in named if name]
    for position, inner in directories:
        outer = next((other for other, path in directories if path != inner and inner.is_relative_to(path)), None)
        if outer is not None:
            what = f"`{sources[outer]['name']}` may use every file in it, since it is inside that source's directory"
            at: Pointer = ("sources", position, "secrets", "directory")
            yield SettingsFault("secrets-directory", what, at, "use two separate directories")


def _normalize_repository_url(url: str, base: Path) -> str:
    """A normalized repository URL, equal for the usual spellings of one repository."""
    local = url.removeprefix("file://") if url.startswith("file://") else url if is_local(url) else None
    if local is None:
        return url.rstrip("/").removesuffix(".git")
    return str((base / Path(local).expanduser()).resolve()).removesuffix("/.git")


def _ingress_faults(locations: dict[str, Any]) -> Iterator[SettingsFault]:
    """Faults in the ``ingress`` of ``locations``, which are as the schema wants them."""
    taken: list[_Port] = []
    for name, location in locations.items():
        if (ingress := location.get("ingress")) is None:
            continue
        at: Pointer = ("locations", name, "ingress")
        if location.get("dataplane") == "builtin":
            message = f"the location `{name}` has an ingress, and its data plane knows no host names"
            yield SettingsFault("ingress", message, at, "install HAProxy, and remove `dataplane: builtin`")
        yield from _check_ingress_addresses(ingress, at)
        yield from _check_shared_ports(ingress, at, name, taken)


def _check_ingress_addresses(ingress: dict[str, Any], at: Pointer) -> Iterator[SettingsFault]:
    for number, text in enumerate(ingress.get("addresses", ())):
        if _parse_address(text) is None:
            where = (*at, "addresses", number)
            yield SettingsFault("ingress", f"`{text}` is no address", where, "write one such as 0.0.0.0 or ::")
    for number, text in enumerate(ingress.get("proxyProtocol", ())):
        try:
            ip_network(text, strict=False)
        except ValueError:
            where = (*at, "proxyProtocol", number)
            yield SettingsFault("ingress", f"`{text}` is no range of addresses", where, "write one like 10.0.0.0/8")


def _check_shared_ports(ingress: dict[str, Any], at: Pointer, name: str, taken: list[_Port]) -> Iterator[SettingsFault]:
    """The ports of ``ingress`` that another one before it has at the same address; adds them to ``taken``."""
    defaults = IngressSettings()
    ports = {"httpPort": defaults.http_port, "httpsPort": defaults.https_port}
    addresses = [
        item for text in ingress.get("addresses", defaults.addresses) if (item := _parse_address(text)) is not None
    ]
    for field, default in ports.items():
        port = ingress.get(field, default)
        others = (
            item for own in addresses for item in taken if item.number == port and _is_same_address(own, item.address)
        )
        other = next((other.owner for other in others), None)
        if other is not None:
            where = f"the location `{other}`" if other != name else "its other port"
            message = f"port {port} of the ingress of `{name}` is that of {where}, at the same address"
            yield SettingsFault("ingress", message, (*at, field) if field in ingress else at, "give it another")
        taken += [_Port(own, port, name) for own in addresses]


def _is_same_address(one: IPv4Address | IPv6Address, other: IPv4Address | IPv6Address) -> bool:
    return one == other or (one.version == other.version and (one.is_unspecified or other.is_unspecified))


def _parse_address(text: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(text)
    except ValueError:
        return None


def _api_faults(api: dict[str, Any] | None) -> Iterator[SettingsFault]:
    if api is None:
        return
    text = api.get("address", "")
    if text and "tls" not in api and not _is_of_this_host(text.rpartition(":")[0]):
        message = f"the API at `{text}` has no `tls`, and other machines can reach it"
        yield SettingsFault("api-tls", message, ("api", "address"), "add `tls`, or listen at 127.0.0.1")
    yield from _login_faults(api)
    yield from _proxy_faults(api)
    for number, hook in enumerate(api.get("webhooks", ())):
        sender = hook.get("oidc")
        if ("secretFile" in hook) == (sender is not None) or (sender is not None and hook["forge"] != "generic"):
            message = f"the webhook of `{hook['source']}` has either a `secretFile`, or `oidc` with the forge `generic`"
            suggestion = "keep the one that the sender has"
            yield SettingsFault("api-webhooks", message, ("api", "webhooks", number), suggestion)
        elif sender is not None and not any(value.strip("*") for value in sender["claims"].values()):
            at: Pointer = ("api", "webhooks", number, "oidc", "claims")
            message = f"every token of {sender['issuer']} would fit: no claim names the sender"
            yield SettingsFault("api-webhooks", message, at, "add a claim, such as its `email`")
    for number, key in enumerate(api.get("metrics", {}).get("resources", ())):
        try:
            Key.parse(key)
        except ValueError as error:
            yield SettingsFault("api-metrics", str(error), ("api", "metrics", "resources", number), "write its key")


def _login_faults(api: dict[str, Any]) -> Iterator[SettingsFault]:
    """Logins return to the URL of the API; and at an issuer that serves everybody, anybody can have a token."""
    url = urlsplit(api.get("url", ""))
    if "oidc" in api and not (api.get("url") or api.get("address")):
        message = "people log in with a browser, and the API has no address for it"
        yield SettingsFault("api-login", message, ("api", "oidc"), "add `api.url`, or `api.address`")
    elif "oidc" in api and url.scheme == "http" and not _is_of_this_host(url.hostname or ""):
        message = "the URL of the API has no https, and the network between would see who logs in"
        yield SettingsFault("api-login", message, ("api", "url"), "write its address with https")
    for number, rule in enumerate(api.get("tokenExchange", ())):
        at: Pointer = ("api", "tokenExchange", number, "claims")
        owners = OWNER_CLAIMS.get(rule["issuer"].rstrip("/"), tuple(rule["claims"]))
        if not any(rule["claims"].get(name, "*").strip("*") for name in owners):
            message = f"every token of {rule['issuer']} would fit: no claim names who may have it"
            names = ", ".join(owners) or "those of your repository"
            yield SettingsFault("api-login", message, at, f"add claims, such as {names}")


def _proxy_faults(api: dict[str, Any]) -> Iterator[SettingsFault]:
    """Proxies that are no addresses or everybody, and a PROXY protocol without a proxy."""
    proxies = api.get("trustedProxies", ())
    for number, text in enumerate(proxies):
        try:
            everybody = ip_network(text, strict=False).prefixlen == 0
        except ValueError as error:
            message = f"{text} is neither an address nor a range: {error}"
            yield SettingsFault("api-proxies", message, ("api", "trustedProxies", number), "write it as 10.0.0.0/8")
            continue
        if everybody:
            message = f"{text} trusts every address: any client could name another as its own"
            yield SettingsFault("api-proxies", message, ("api", "trustedProxies", number), "name your proxies")
    if api.get("proxyProtocol") and not proxies:
        message = "no proxy is trusted, so no connection begins with a PROXY header"
        yield SettingsFault("api-proxies", message, ("api", "proxyProtocol"), "add its address to `trustedProxies`")


def _is_of_this_host(host: str) -> bool:
    address = _parse_address(host.strip("[]"))
    return host == "localhost" or (address is not None and address.is_loopback)


def _notification_faults(value: dict[str, Any]) -> Iterator[SettingsFault]:
    """Channels without an address, and rules that name what is not there."""
    settings = value.get("notifications", {})
    channels, sources = settings.get("channels", {}), [source["name"] for source in value["sources"]]
    heartbeat = settings.get("heartbeat")
    if heartbeat is not None and not {"url", "urlFile"} & heartbeat.keys():
        message = "the heartbeat has no `url`, and no `urlFile`"
        yield SettingsFault("notifications", message, ("notifications", "heartbeat"), "add one of them")
    for name, channel in channels.items():
        webhook = channel.get("webhook")
        kinds = channel.keys() - {"gvcs"}
        if len(kinds) != 1:
            message = f"the channel `{name}` has to be of one kind, and this has {len(kinds)}"
            advice = "write a `webhook`, `slack`, `teams` or `apprise`"
            yield SettingsFault("notifications", message, ("notifications", "channels", name), advice)
        if webhook is not None and ("url" in webhook) == ("urlFile" in webhook):
            at: Pointer = ("notifications", "channels", name, "webhook")
            message = f"the channel `{name}` has either a `url` or a `urlFile`"
            yield SettingsFault("notifications", message, at, "keep one of them")
    yield from _forge_faults(settings, sources)
    seen: set[str] = set()
    for number, rule in enumerate(settings.get("rules", ())):
        if rule["name"] in seen:
            at = ("notifications", "rules", number, "name")
            message = f"two rules are named `{rule['name']}`"
            yield SettingsFault("notifications", message, at, "give each a name of its own")
        seen.add(rule["name"])
        for member in ("quietHours", "digest"):
            yield from _unknown_zones(number, rule.get(member, {}), member)
        for member, names in (("channels", list(channels)), ("sources", sources)):
            yield from _unknown_names(number, rule, member, names)


def _forge_faults(settings: dict[str, Any], sources: list[str]) -> Iterator[SettingsFault]:
    """Forges with no login or two, with the name of a channel or rule, and with sources that are not there."""
    names = {*settings.get("channels", {}), *(rule["name"] for rule in settings.get("rules", ()))}
    for name, forge in settings.get("forges", {}).items():
        at: Pointer = ("notifications", "forges", name)
        if name in names:
            message = f"the forge `{name}` has the name of a channel or of a rule"
            yield SettingsFault("notifications", message, at, "give each a name of its own")
        if ("app" in forge) == ("tokenFile" in forge):
            message = f"the forge `{name}` has either a `tokenFile` or, at GitHub, an `app`"
            yield SettingsFault("notifications", message, at, "keep one of them")
        for position, source in enumerate(forge.get("sources", ())):
            if source not in sources:
                message = f"there is no source `{source}`"
                place = (*at, "sources", position)
                yield SettingsFault("notifications", message, place, f"name one of: {', '.join(sources)}")


def _unknown_names(number: int, rule: dict[str, Any], member: str, names: list[str]) -> Iterator[SettingsFault]:
    """The names in the ``member`` of a rule of notifications that are none of ``names``."""
    for position, name in enumerate(rule.get(member, ())):
        if name not in names:
            message = f"there is no {member.removesuffix('s')} `{name}`"
            at: Pointer = ("notifications", "rules", number, member, position)
            yield SettingsFault("notifications", message, at, f"name one of: {', '.join(names)}")


def _unknown_zones(number: int, settings: dict[str, Any], member: str) -> Iterator[SettingsFault]:
    """The time zone in the ``member`` of a rule of notifications, if this host does not know it."""
    zone = settings.get("zone", "UTC")
    if not is_time_zone(zone):
        at: Pointer = ("notifications", "rules", number, member, "zone")
        message = f"this host knows no time zone `{zone}`"
        yield SettingsFault("notifications", message, at, "write a name such as Europe/Berlin")
