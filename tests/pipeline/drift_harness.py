"""A pipeline whose location ``here`` is a ledger, which tests change behind the program's back."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from reconciler.drift.monitor import DriftMonitor
from reconciler.model.key import Key
from reconciler.operations.commands import OperatorCommands
from reconciler.planning.drift import describe_drift, parse_drift
from reconciler.status.conditions import compute_conditions
from reconciler.status.facts import FactsReader
from tests.support.engines import LedgerEngine
from tests.support.git import File
from tests.support.pipeline import BASE, PipelineHarness

WEB = """kind: workload
name: web
spec:
  type: standard
  containers: [{name: main, image: "nginx:1"}]
"""
KEY = "workload/shop/web"
SHOP: dict[str | bytes, File] = {"shop/gvc.yaml": BASE, "shop/web.yaml": WEB}


class DriftHarness(PipelineHarness):
    """At ``here`` works the ledger ``self.ledger``, at ``there`` the recorded engine."""

    def __init__(self, path: Path, files: Mapping[str | bytes, File] = SHOP, **settings: Any) -> None:
        super().__init__(path, files, **settings)
        self.ledger = LedgerEngine(path / "ledger")
        self.engines["here"] = self.ledger
        self.monitor = self.new_monitor()

    def new_monitor(self) -> DriftMonitor:
        """A monitor as a newly started program makes it."""
        return DriftMonitor(self.settings, self.records, self.clock, self.engines)

    def check(self) -> set[str]:
        """Check the locations."""
        return asyncio.run(self.monitor.check())

    def differs(self) -> list[str]:
        """What is known to differ, in the words of events."""
        return [f"{row.key} {describe_drift(parse_drift(row.packed))}" for row in self.records.drifts.all()]

    def events(self, *reasons: str) -> list[str]:
        """The events with one of ``reasons``, ``REASON KEY`` each."""
        return [f"{each.reason} {each.key}" for each in self.records.events.list() if each.reason in reasons]

    def conditions(self, key: str = KEY) -> list[str]:
        """The conditions of a resource, ``TYPE STATUS REASON`` each."""
        facts = FactsReader(self.records, self.settings).facts(Key.parse(key))
        return [f"{each.type} {each.status} {each.reason}" for each in compute_conditions(facts)]

    def operations(self) -> OperatorCommands:
        """The commands of operators."""
        return OperatorCommands(self.settings, self.records, self.clock, "ada")

    def another_image(self, image: str = "nginx:9", key: str = KEY) -> None:
        """Change the image of ``key`` at the location behind the program's back."""
        record = next(each for each in self.records.applied.get(key) if each.location == "here")
        body = msgspec.json.decode(record.body)
        body["spec"]["containers"][0]["image"] = image
        self.ledger.meddle(key, digest=f"of {image}", body=msgspec.json.encode(body).decode())
