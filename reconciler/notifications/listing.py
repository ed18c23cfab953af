"""Deliveries as lines of text, in full, and as JSON values."""

from __future__ import annotations

from typing import Any, NamedTuple

from reconciler.notifications.bodies import describe_message, format_text
from reconciler.notifications.message import Message
from reconciler.notifications.outbox import decode_message
from reconciler.notifications.severity import Severity
from reconciler.records.notifications.deliveries import Delivery, DeliveryStatus
from reconciler.render.layout import paint_text
from reconciler.render.style import TextStyle
from reconciler.times import format_iso_time

_COLOURS = {
    DeliveryStatus.SENT: "green",
    DeliveryStatus.REFUSED: "red",
    DeliveryStatus.EXPIRED: "red",
    DeliveryStatus.COLLECTED: "yellow",
    DeliveryStatus.WAITING: "yellow",
    DeliveryStatus.SENDING: "yellow",
}

_SEVERITY_COLOURS = {Severity.CRITICAL: "red", Severity.ERROR: "red", Severity.WARNING: "yellow"}


class ListedDelivery(NamedTuple):
    """A delivery with its message; ``is_whole`` says that the text of the message is shown, too."""

    delivery: Delivery
    message: Message
    is_whole: bool = False


def list_delivery(delivery: Delivery, *, is_whole: bool = False) -> ListedDelivery:
    """``delivery`` with its message."""
    return ListedDelivery(delivery, decode_message(delivery), is_whole)


def format_delivery(listed: ListedDelivery, style: TextStyle) -> str:
    """A line with the title and what became of it, then the answer; the text of the message if it is whole."""
    delivery, message, is_whole = listed
    tries = f" ({delivery.tries} tries)" if delivery.tries > 1 else ""
    line = "  ".join(
        (
            f"{delivery.id:>4}",
            paint_text(format_iso_time(delivery.ended or delivery.created), "grey", style.colour),
            delivery.channel,
            paint_text(f"{delivery.status}{tries}", _COLOURS.get(delivery.status, ""), style.colour),
            paint_text(str(message.severity), _SEVERITY_COLOURS.get(message.severity, ""), style.colour),
            message.title,
        )
    )
    answer = f"\n      {delivery.answer}" if delivery.answer else ""
    text = "".join(f"\n  {text_line}" for text_line in format_text(message).splitlines()) if is_whole else ""
    return f"{line}{answer}{text}"


def describe_delivery(listed: ListedDelivery) -> dict[str, Any]:
    """A delivery as JSON values; with the message if it is whole."""
    delivery, message, is_whole = listed
    values = {
        "id": delivery.id,
        "channel": delivery.channel,
        "rule": delivery.rule,
        "event": str(message.event),
        "state": delivery.state,
        "severity": str(message.severity),
        "source": delivery.source or None,
        "title": message.title,
        "status": str(delivery.status),
        "tries": delivery.tries,
        "mayRepeat": delivery.may_repeat,
        "created": format_iso_time(delivery.created),
        "due": format_iso_time(delivery.due),
        "ended": None if delivery.ended is None else format_iso_time(delivery.ended),
        "answer": delivery.answer or None,
    }
    return values | {"message": describe_message(message)} if is_whole else values
