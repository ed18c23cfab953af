"""``python -m tests.fuzz``: fuzz for an hour, or for FUZZ_SECONDS, and report the findings."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from tests.fuzz.campaign import HOME, FuzzWorkspace, cores, fuzz, missing
from tests.fuzz.targets import TARGETS


def main(arguments: list[str]) -> int:
    """1 where something was found, 2 where there can be no fuzzing."""
    options = _parser().parse_args(arguments)
    if options.reproduce:
        name, *files = options.reproduce
        for path in files:
            TARGETS[name].check(Path(path).read_bytes())
        return 0
    if reason := missing():
        print(reason, file=sys.stderr)
        return 2
    chosen = {name: target for name, target in TARGETS.items() if name in options.targets or not options.targets}
    whole = sum(target.share for target in chosen.values())
    crashers = []
    for name, target in chosen.items():
        seconds = options.seconds * target.share / whole
        print(f"{name}: {seconds:.0f} s with {cores()} processes", flush=True)
        outcome = fuzz(FuzzWorkspace(name, HOME), seconds, cores(), seed=options.seed)
        print(outcome, flush=True)
        crashers += outcome.found
        for each in outcome.found:
            print(f"\n{each}\n", flush=True)
    return int(bool(crashers))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m tests.fuzz", description=__doc__)
    seconds = int(os.environ.get("FUZZ_SECONDS") or 3600)
    parser.add_argument("--seconds", type=int, default=seconds, help=f"for all targets together; {seconds}")
    parser.add_argument("--seed", type=int, default=1, help="where chance begins; 1")
    parser.add_argument("--targets", nargs="+", choices=TARGETS, default=[], help="all where none is named")
    parser.add_argument("--reproduce", nargs="+", metavar=("TARGET", "FILE"), help="check files that were found")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
