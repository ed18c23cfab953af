"""``python -m tests.bench``: each figure of docs/benchmarks.md, measured here and now, beside its budget."""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import mean

from tests.bench.calibration import REFERENCE, Calibration
from tests.bench.measure import Failed, OtherPrograms, disk_flush
from tests.bench.rows import ON_DEMAND, ROWS, others
from tests.bench.table import HEADING, Machine, Row, cells, line
from tests.bench.workspace import Workspace

SHORT = 0.1
"""Seconds in which nothing is measured."""


def main(arguments: list[str]) -> int:
    """Print the table; 0 however the figures are, 1 where something could not be measured, 2 for wrong arguments."""
    options = _parser().parse_args(arguments)
    unknown = set(options.only) - ROWS.keys()
    if unknown:
        print(f"no such measurement: {', '.join(sorted(unknown))}; there are {', '.join(ROWS)}", file=sys.stderr)
        return 2
    cache = options.dir.absolute()
    cache.mkdir(parents=True, exist_ok=True)
    count = options.count or (5_000 if options.quick else 100_000)
    scratch = Path(tempfile.mkdtemp(prefix="run-", dir=cache))
    try:
        with Calibration(scratch) as calibration:
            workspace = Workspace(cache, scratch, count, options.quick, options.fixture, calibration)
            workspace.workloads = options.workloads
            return _print_rows(workspace, options.only, options.peers)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _print_rows(workspace: Workspace, only: list[str], with_peers: bool) -> int:
    flush = f"{1000 * disk_flush(workspace.scratch):.2f} ms"
    machine = f"{os.cpu_count()} CPUs, Python {platform.python_version()}"
    print(f"{workspace.count:,} {workspace.fixture} manifests; {machine}; a durable write takes {flush} here")
    print(f"budgets: as set where one document takes PyYAML {1000 * REFERENCE:.2f} ms of CPU, and at the pace here")
    print(line(HEADING).rstrip(), flush=True)
    chosen = [(name, rows) for name, rows in ROWS.items() if name in only or not (only or name in ON_DEMAND)]
    failed = 0
    for name, rows in [*chosen, ("peers", others)] if with_peers else chosen:
        began = time.monotonic()
        try:
            _print_group(rows(workspace), workspace.calibration)
            loads = sorted(1000 * each for each in workspace.calibration.since(began))
            print(f"  (one document took PyYAML {mean(loads):.2f} ms meanwhile, {loads[0]:.2f} to {loads[-1]:.2f} ms)")
        except Failed as error:
            failed += 1
            print(f"{name} could not be measured: {error}", flush=True)
    return int(failed > 0)


def _print_group(rows: Iterator[Row], calibration: Calibration) -> None:
    others, began = OtherPrograms(), time.monotonic()
    machine = Machine(calibration.pace(began))
    for row in rows:
        # Several rows may come from one measurement: then its machine is theirs too.
        if others.seconds() > SHORT:
            machine = Machine(calibration.pace(began), others.share())
            others, began = OtherPrograms(), time.monotonic()
        print(line(cells(row, machine)).rstrip(), flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m tests.bench", description=__doc__)
    parser.add_argument("--count", type=int, default=0, help="manifests in the large one; 100000, or 5000 if quick")
    parser.add_argument("--workloads", type=int, default=0, help="on a cluster; 2000, or 100 if quick")
    parser.add_argument(
        "--fixture",
        choices=("published", "plain"),
        default="published",
        help="shapes as in published manifests; or plain, as former commits measured",
    )
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help=f"some of: {', '.join(ROWS)}")
    parser.add_argument("--quick", action="store_true", help="less, and less often: does it work at all")
    parser.add_argument("--peers", action="store_true", help="other programs too, fetched where missing")
    cache = Path(tempfile.gettempdir()) / "reconciler-bench"
    parser.add_argument("--dir", type=Path, default=cache, help=f"where repositories are cached; {cache}")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
