"""The output files of a runtime: ``TOP/gvc/workload/replica/container/output``."""

from __future__ import annotations

from pathlib import Path

from reconciler.engines.host.runtimes.protocol import ContainerId, OutputFile, OutputForm
from reconciler.listing import list_paths
from reconciler.model.key import Key, Kind

OUTPUT = "output"
"""The name of the output file in the directory of a container."""


def list_outputs(top: Path, form: OutputForm) -> list[OutputFile]:
    """All output files below ``top``, also those of replicas without a file. Raises OSError."""
    output_files = []
    for path in list_paths(top, f"*/*/*/*/{OUTPUT}"):
        gvc, workload, replica, container = path.parent.relative_to(top).parts
        output_files.append(OutputFile(ContainerId(Key(Kind.WORKLOAD, gvc, workload), replica, container), path, form))
    return output_files
