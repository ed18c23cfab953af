"""When a volume is nearly full, and when it no longer is."""

from __future__ import annotations

import msgspec
import pytest

from reconciler.engines.engine_state import engine_conditions
from reconciler.engines.protocol import Observation
from reconciler.engines.workload.volume_fill import FilledVolume, VolumeFill, describe_fill
from reconciler.model.key import Key
from reconciler.model.quantity import GIB
from reconciler.model.record import Health
from reconciler.reasons import ConditionType

KEY = Key.parse("volumeset/shop/data")
FULL = "less than 15 % of volume 0 (10 GB) is free"


def fill(*percents: float) -> tuple[FilledVolume, ...]:
    """Volumes of 10 GB that are full to ``percents``."""
    return tuple(FilledVolume(number, 10, int(percent / 10 * GIB)) for number, percent in enumerate(percents))


@pytest.mark.parametrize(
    ("percent", "former", "message"),
    [(89.9, "", ""), (90, "", FULL), (100, "", FULL), (89.9, FULL, FULL), (85, FULL, FULL), (84.9, FULL, "")],
)
def test_it_begins_at_one_level_and_ends_below_a_lower_one(percent: float, former: str, message: str) -> None:
    assert describe_fill(fill(percent), former) == message


def test_every_volume_of_the_set_that_is_full_is_named() -> None:
    assert describe_fill(fill(91, 20, 86), "") == "less than 15 % of volume 0 (10 GB) and volume 2 (10 GB) is free"


def test_until_it_is_measured_a_volume_is_as_full_as_it_was() -> None:
    assert describe_fill(fill(0), FULL) == FULL
    assert describe_fill(fill(0), "") == ""
    assert describe_fill((), FULL) == ""
    assert describe_fill((FilledVolume(0, 0, 5),), "") == ""


def test_a_fill_that_goes_up_and_down_between_the_levels_is_one_condition() -> None:
    volume_fill, shown = VolumeFill(), []
    seen = Observation(KEY, "here", Health.HEALTHY, b"{}", "d1", 1)
    for percent in (80, 88, 91, 87, 89, 92, 86, 84, 88):
        found = volume_fill.with_condition(seen, fill(percent))
        shown.append([one.type for one in engine_conditions(found.state)] == [ConditionType.VOLUME_NEARLY_FULL])
    assert shown == [False, False, True, True, True, True, True, False, False]


def test_after_a_restart_the_recorded_condition_goes_on() -> None:
    seen = Observation(KEY, "here", Health.HEALTHY, b"{}", "d1", 1)
    recorded = VolumeFill().with_condition(seen, fill(95)).state
    volume_fill = VolumeFill()
    volume_fill.restore(KEY, recorded)
    assert engine_conditions(volume_fill.with_condition(seen, fill(87)).state)
    volume_fill.restore(KEY, b"{}")
    assert engine_conditions(volume_fill.with_condition(seen, fill(87)).state), "what was seen since counts"
    volume_fill.retain(())
    volume_fill.restore(KEY, msgspec.json.encode({}))
    assert not engine_conditions(volume_fill.with_condition(seen, fill(87)).state)
