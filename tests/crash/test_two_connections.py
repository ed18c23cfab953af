"""Two connections of one process to the same records do not release each other's locks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from reconciler.records.store import FILE, Records

READ = """
import sys
from pathlib import Path
from reconciler.records.store import Records
records = Records.open(Path(sys.argv[1]))
print(sum(1 for _ in records.status_queue.take("main").keys))
records.close()
"""


def rows_seen(path: Path) -> int:
    """The number of keys that another process reads; it closes what it takes for the last connection."""
    command = [sys.executable, "-c", READ, str(path)]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def test_opening_the_records_a_second_time_leaves_the_locks_of_the_first_alone(tmp_path: Path) -> None:
    path = tmp_path / FILE
    first = Records.open(path)
    first.status_queue.add_many("main", ["gvc/a"])
    Records.open(path).close()
    assert rows_seen(path) == 1
    first.status_queue.add_many("main", ["gvc/b"])
    assert rows_seen(path) == 2
    first.close()
    assert rows_seen(path) == 2
