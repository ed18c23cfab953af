"""Puts a list of the package's dependencies into its wheel, as CycloneDX in ``dist-info/sboms`` (PEP 770).

It lists what ``examples/ci/constraints.txt`` names: the versions that the package is tested with. It has no time and no
number by chance, so that two builds are equal.
"""

from __future__ import annotations

import json
import re
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

NAME = "gitops-reconciler.cdx.json"
_PIN = re.compile(r"^([a-z0-9-]+)==(\S+)", re.MULTILINE)
_REQUIREMENT = re.compile(r"[A-Za-z0-9._-]+")


class SbomHook(BuildHookInterface):  # type: ignore[type-arg]
    """Writes the list beside a build, and removes it afterwards."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Write the list; an editable installation has none."""
        if version != "standard":
            return
        self._folder = tempfile.TemporaryDirectory(prefix="sbom-")
        metadata = self.metadata.core
        pins = dict(_PIN.findall((Path(self.root) / "examples" / "ci" / "constraints.txt").read_text()))
        path = Path(self._folder.name) / NAME
        path.write_text(json.dumps(bill(metadata.name, self.metadata.version, metadata.dependencies, pins), indent=2))
        path.chmod(0o644)
        build_data["sbom_files"].append(str(path))

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002
        """Remove the list, which the wheel has now."""
        if version == "standard":
            self._folder.cleanup()


def bill(name: str, version: str, dependencies: list[str], pins: dict[str, str]) -> dict[str, Any]:
    """The list for a package; ``pins`` are the versions by name."""
    own = f"pkg:pypi/{name}@{version}"
    direct = sorted({_normal(_REQUIREMENT.match(each)[0]) for each in dependencies})  # type: ignore[index]
    components = {pin: f"pkg:pypi/{pin}@{pins[pin]}" for pin in sorted(pins)}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "lifecycles": [{"phase": "build"}],
            "component": {"type": "application", "bom-ref": own, "name": name, "version": version, "purl": own},
        },
        "components": [
            {"type": "library", "bom-ref": purl, "name": pin, "version": pins[pin], "purl": purl}
            for pin, purl in components.items()
        ],
        "dependencies": [{"ref": own, "dependsOn": [components[each] for each in direct]}],
    }


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
