"""Finds the routes that HAProxy refuses, before they are in its configuration: they must not take the others down."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from reconciler.engines.host.dataplane.haproxy.ingress import rule_line
from reconciler.engines.host.dataplane.haproxy.master import Master
from reconciler.engines.host.dataplane.haproxy.outside import change_lines, fault_of, origin_lines, usable_origin
from reconciler.engines.host.dataplane.haproxy.rendering.quoting import LONGEST_LINE
from reconciler.engines.workload.routing.table import Outside, RouteRule, RouteTable, Site

_ALERT = re.compile(r"\[ALERT\].*? parsing \[[^]:]*:(\d+)\] ?: ?(.*)")
_START = ["defaults", "  mode http", "  timeout client 1s", "frontend check", "  acl outside always_true"]
_MOST_KNOWN = 100_000


class RouteChecks:
    """Asks the HAProxy of ``master`` about each line once. It may stop at the first one that it refuses."""

    def __init__(self, master: Master) -> None:
        self._master = master
        self._verdicts: dict[str, str] = {}

    async def usable(self, table: RouteTable) -> RouteTable:
        """``table`` without what HAProxy refuses, which becomes problems of domains. Raises EngineError."""
        faults = {rule.id: fault_of(rule) for rule in table.rules}
        lines = {rule.id: list(_rule_lines(table, rule)) for rule in table.rules if not faults[rule.id]}
        origins = {site.id: list(origin_lines(site.cors)) for site in table.sites if site.cors is not None}
        await self._check({line for texts in (*lines.values(), *origins.values()) for line in texts})
        problems: dict[str, list[str]] = {name: list(texts) for name, texts in table.problems.items()}
        verdicts = {name: fault or self._refusal(lines[name]) for name, fault in faults.items()}
        refused = {name: why for name, why in verdicts.items() if why}
        bad_sites = {site.id: why for site in table.sites if (why := self._cors_fault(site, origins.get(site.id, [])))}
        for text, why in (*refused.items(), *bad_sites.items()):
            site, _, number = text.partition("/")
            what = f"route {int(number) + 1}" if number else "CORS"
            domain, _, port = site.rpartition(":")
            problems.setdefault(domain, []).append(f"{what} of port {port} is left out: {why}")
        return _remove_rules(table, refused.keys(), bad_sites.keys(), problems)

    def _cors_fault(self, site: Site, lines: Iterable[str]) -> str:
        if site.cors is not None and not all(map(usable_origin, site.cors.allow_origins)):
            return "an origin is empty, too long, or has characters other than printable ASCII"
        return self._refusal(lines)

    def _refusal(self, lines: Iterable[str]) -> str:
        return next((why for line in lines if (why := self._verdicts.get(line, ""))), "")

    async def _check(self, lines: set[str]) -> None:
        if len(self._verdicts) > _MOST_KNOWN:
            self._verdicts.clear()
        new = sorted(line for line in lines if line not in self._verdicts)
        for new_line in new:
            self._verdicts[new_line] = "it is too long" if len(new_line) > LONGEST_LINE else ""
        while new := [text for text in new if not self._verdicts[text]]:
            alerts = _ALERT.findall(await self._master.check_text("\n".join([*_START, *new, ""])))
            places = [(int(number) - len(_START) - 1, why.strip()) for number, why in alerts]
            refusals = [(at, why) for at, why in places if 0 <= at < len(new)]
            for at, why in refusals:
                self._verdicts[new[at]] = f"HAProxy refuses it: {why}"
            # Other alerts are about no line, so another round would not end.
            if not refusals:
                break


def _rule_lines(table: RouteTable, rule: RouteRule) -> Iterator[str]:
    if rule.prefix is None or rule.site not in table.mapped:
        yield rule_line(rule)
    yield from change_lines(rule)


def _remove_rules(
    table: RouteTable, rules: Iterable[str], sites: Iterable[str], problems: dict[str, list[str]]
) -> RouteTable:
    left_out, bare = set(rules), set(sites)
    if not left_out and not bare:
        return table

    def remaining(entries: tuple[RouteRule, ...]) -> tuple[RouteRule, ...]:
        return tuple(rule for rule in entries if rule.id not in left_out)

    def shown(entries: tuple[Site, ...]) -> tuple[Site, ...]:
        return tuple(replace(site, cors=None) if site.id in bare else site for site in entries)

    def reduced(outside: Outside) -> Outside:
        return replace(outside, rules=remaining(outside.rules), sites=shown(outside.sites))

    return replace(
        table,
        rules=remaining(table.rules),
        sites=shown(table.sites),
        workloads={key: reduced(outside) for key, outside in table.workloads.items()},
        problems={name: tuple(texts) for name, texts in problems.items()},
    )
