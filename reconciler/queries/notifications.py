"""What was sent to whom."""

from __future__ import annotations

from collections.abc import Sequence

from reconciler.errors import NotFoundError
from reconciler.notifications.listing import ListedDelivery, list_delivery
from reconciler.records.store import Records


def list_notifications(records: Records, last: int) -> Sequence[ListedDelivery]:
    """The ``last`` messages, newest first."""
    return [list_delivery(delivery) for delivery in records.deliveries.list(last)]


def find_notification(records: Records, number: int) -> ListedDelivery:
    """The message ``number``, as a whole. Raises NotFoundError."""
    delivery = records.deliveries.get(number)
    if delivery is None:
        raise NotFoundError(f"there is no message {number}, or not any more; see: reconciler notify list")
    return list_delivery(delivery, is_whole=True)
