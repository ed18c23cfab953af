"""docs/metrics.md: the metrics of the daemon, from the table of the page for Prometheus, and the alerts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import yaml

from docs.generate.tables import table
from reconciler.api.metrics import METRICS

HEAD = """\
# Metrics

`GET /metrics` of the [HTTP API](http.md) has the metrics of the daemon in the text format of Prometheus. It takes the
permission `view` on the org. Create a service account, let a policy grant it `view` on the org, add a key, and store
the key in a file that only Prometheus can read:

```yaml
scrape_configs:
  - job_name: reconciler
    scheme: https
    authorization: {credentials_file: /etc/prometheus/reconciler.key}
    static_configs: [{targets: ["ops.example.com:8443"]}]
```

The label `resource` is on metrics of the resources in the setting [`api.metrics.resources`](settings.md) alone, so the
number of series does not grow with the number of resources. The values come from the records, in which counts of
resources are kept: a scrape reads no manifest.

[Alert rules](monitoring/alerts.yaml) for Prometheus use them, and so does a
[dashboard](monitoring/dashboard.json) that Grafana imports.

"""


ALERTS_HEAD = """
## Alerts

The [rules](monitoring/alerts.yaml) alert when an expression holds for a time. Change the times there to yours.

"""

ALERTS = Path(__file__).parents[1] / "monitoring" / "alerts.yaml"

TAIL = """
## Traces

With the setting [`traces`](settings.md), the daemon sends a trace of each run of a source to a receiver of
OpenTelemetry's protocol over HTTP. Install the extra `otlp` of the package with it: `pip install '.[otlp]'`.

The root `reconcile` has the commit as `vcs.ref.head.revision`, the source, the reason and the outcome. Below it are
`fetch`, `load`, `plan`, a `step` for each call of an engine (with action, key, location and result), and the first
`status` commit after the run. Messages and values are in none. A poll that finds nothing makes no trace. A receiver
that hangs delays nothing: spans wait in a queue of 8,192, of which the oldest are dropped.
"""


def page() -> str:
    """The text of the page."""
    rows = ((f"`{each.name}`", each.type, ", ".join(f"`{name}`" for name in each.labels), each.description)
            for each in METRICS)  # fmt: skip
    metrics = table(("Metric", "Type", "Labels", "What it is"), rows)
    alerts = table(("Alert", "Severity", "Holds for", "What is wrong"), _alerts())
    return HEAD + metrics + ALERTS_HEAD + alerts + TAIL


def _alerts() -> Iterator[tuple[str, ...]]:
    for group in yaml.safe_load(ALERTS.read_text())["groups"]:
        for rule in group["rules"]:
            summary = re.sub(r"\{\{ \$labels\.(\w+) \}\}", lambda found: f"`{found[1].upper()}`",
                             rule["annotations"]["summary"])  # fmt: skip
            yield f"`{rule['alert']}`", rule["labels"]["severity"], rule["for"], summary
