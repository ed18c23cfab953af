"""When a certificate is ordered: at two thirds of its life, and after failures later and later."""

from __future__ import annotations

from itertools import pairwise

from reconciler.engines.host.dataplane.acme.renewal import OrderFailures, Validity, next_order

DAY = 86_400.0
LIFE = Validity(0.0, 90 * DAY)


def test_a_host_without_a_certificate_is_due_at_once() -> None:
    assert next_order("a.example", None, None) == 0.0


def test_renewals_are_due_before_two_thirds_of_the_life_and_are_spread() -> None:
    due = [next_order(f"{number}.example", LIFE, None) for number in range(200)]
    assert due == [next_order(f"{number}.example", LIFE, None) for number in range(200)]
    assert 55 * DAY <= min(due) < 56 * DAY
    assert 59 * DAY < max(due) <= 60 * DAY


def test_clocks_that_disagree_lead_to_no_order_after_the_other() -> None:
    assert next_order("a.example", Validity(-90 * DAY, 0.0, ordered=1000.0), None) == 1000.0 + 2 * DAY


def test_a_certificate_of_ten_minutes_is_renewed_in_time_also_after_a_failure() -> None:
    life = Validity(1000.0, 1600.0, ordered=1000.0)
    assert 1360 <= next_order("a.example", life, None) <= 1400
    failed = next_order("a.example", life, OrderFailures(1, 1400.0))
    assert 1460 <= failed <= 1470
    assert (
        next_order("a.example", Validity(1000.0, 1000.0 + 7 * DAY, 1000.0), OrderFailures(1, 5 * DAY)) >= 5 * DAY + 900
    )


def test_each_failure_doubles_the_delay_up_to_half_a_day() -> None:
    delays = [next_order("a.example", None, OrderFailures(count, 1000.0)) - 1000.0 for count in range(1, 40)]
    assert 900 <= delays[0] <= 945
    assert all(later == 2 * earlier for earlier, later in pairwise(delays[:6]))
    assert 43_200 <= delays[-1] <= 45_360


def test_the_authority_may_ask_for_a_longer_wait_but_not_for_a_shorter_or_endless_one() -> None:
    assert next_order("a.example", None, OrderFailures(1, 0.0, "", 7200.0)) == 7200.0
    assert next_order("a.example", None, OrderFailures(1, 0.0, "", 1.0)) >= 900.0
    assert next_order("a.example", None, OrderFailures(1, 0.0, "", 1e12)) == 7 * DAY


def test_a_failed_renewal_is_not_due_before_its_delay_is_over() -> None:
    assert next_order("a.example", LIFE, OrderFailures(1, 70 * DAY)) > 70 * DAY
    assert next_order("a.example", LIFE, OrderFailures(1, 0.0)) > 50 * DAY
