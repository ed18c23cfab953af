"""docs/host.md: how workloads run on the daemon's own machine; its text is in host.md.in."""

from __future__ import annotations

import re
from pathlib import Path

from docs.generate.hosted import MEANINGS, ROOT, course, sentences, surges, variables, waits
from docs.generate.tables import table
from reconciler.daemon import metrics_server
from reconciler.engines.host.autoscaling import capacity, decide
from reconciler.engines.host.controllers import ephemeral_storage
from reconciler.engines.host.controllers.action_errors import ERROR_RETRY_SECONDS
from reconciler.engines.host.dataplane import error_log, protocol
from reconciler.engines.host.decisions import availability
from reconciler.engines.host.decisions.timing import Timing
from reconciler.engines.host.logs import blocks, retention, tail
from reconciler.engines.host.metrics import exposition, scrape, scraper
from reconciler.engines.host.probes import port_watch, state
from reconciler.engines.host.runtimes.plugins import runtime_names
from reconciler.model.platform import BLOCKED_PORTS, STORE_URIS

TEMPLATE = Path(__file__).with_name("host.md.in")

OWN_WAY = frozenset({"HOME", "HOSTNAME", "LANG", "PATH", "TMPDIR", "PORT_8080"})
"""Variables that a manifest may set."""

HOOKS = (("no hook", None), ("a hook of 10 s", 10.0), ("a hook that does not end", 1000.0))

VOLUMES = (
    (
        "`platform://secret/…`",
        "The files of [Secrets as files](platform/workload.md#secrets-as-files), read-only and for its user only, not "
        "its group. They are created at each start of the container; a changed secret replaces the replicas.",
    ),
    (
        "`platform://volumeset/…`",
        "The volume for the replica's index: `db-0` always has the first. Where this host can mount images, it has "
        "the capacity and file system of its [volume set](platform/volumeset.md); its class has no effect.",
    ),
    (
        "`scratch://…`",
        "An empty directory, shared by the containers of the replica that mount it at the same path, and removed with "
        "the replica.",
    ),
    (", ".join(f"`{each}…`" for each in STORE_URIS), "Nothing."),
)


def page() -> str:
    """The text of the page. Raises KeyError if the template names an unknown fact."""
    facts = {**_numbers(), **_tables()}
    text = TEMPLATE.read_text()
    assert facts.keys() == set(re.findall(r"@(\w+)@", text))
    return re.sub(r"@(\w+)@", lambda found: facts[found[1]], text)


def _numbers() -> dict[str, str]:
    timing = Timing()
    known = {
        "cpu": capacity.LEAST_CPU,
        "percent": capacity.PERCENTILE,
        "interval": scraper.INTERVAL,
        "again": scraper.CHECK,
        "failures": scraper.FAILURES,
        "timeout": scrape.TIMEOUT,
        "mebibytes": scrape.MAX_BYTES >> 20,
        "samples": exposition.MAX_SAMPLES,
        "metrics": exposition.MAX_FAMILIES,
        "listen": metrics_server.RETRY,
        "brisk": decide.BRISK,
        "panic": decide.PANIC,
        "settling": decide.SETTLING / 60,
        "steady": decide.STEADY,
        "starting": availability.START_SECONDS,
        "unheard": port_watch.GRACE_SECONDS,
        "steep": decide.STEEP,
        "unproven": protocol.UNPROVEN,
        "errors": error_log.MOST,
        "eager": state.EAGER,
        "patient": state.PATIENT,
        "proof": availability.MIN_UNPROBED_UPTIME,
        "grace": timing.grace,
        "whole": timing.total,
        "reset": timing.backoff_reset / 60,
        "retry": waits("StartFailed")[0],
        "first": ERROR_RETRY_SECONDS[0],
        "most": ERROR_RETRY_SECONDS[1],
        "measured": ephemeral_storage.MEASURE_SECONDS,
        "gone": retention.MOST_GONE,
        "longest": blocks.LONGEST_LINE >> 10,
        "patience": tail.PATIENCE,
    }
    return {name: f"{number:g}" for name, number in known.items()}


def _tables() -> dict[str, str]:
    return {
        "blocked": ", ".join(map(str, sorted(BLOCKED_PORTS))),
        "courses": _courses(),
        "root": str(ROOT),
        "sentences": _sentences(),
        "surges": table(("Replicas", "Most additional", "Most unavailable"), surges(1, 2, 4, 10)),
        "variables": _variables(),
        "volumes": table(("Volume", "Content"), VOLUMES),
        "waits": ", ".join(f"{each:g}" for each in waits("Error")),
    }


def _sentences() -> str:
    every = runtime_names()
    rows = ((text, *("yes" if name in names else "" for name in every)) for text, names in sentences().items())
    return table(("Sentence", *(f"`{name}`" for name in every)), rows)


def _variables() -> str:
    rows = (
        (f"`{name}`{' *' * (name in OWN_WAY)}", MEANINGS[name], f"`{value}`") for name, value in variables().items()
    )
    return table(("Variable", "Content", "Example"), rows)


def _courses() -> str:
    scaled = Timing(scale=0.1)
    rows = ((case, *map(_seconds, (*course(hook, Timing()), *course(hook, scaled)))) for case, hook in HOOKS)
    short = "with `terminationScale: 0.1`"
    return table(("preStop", "SIGTERM after", "SIGKILL after", f"SIGTERM {short}", f"SIGKILL {short}"), rows)


def _seconds(number: float | None) -> str:
    return "never" if number is None else f"{number:g} s"
