"""A process that sends one message by Apprise: a request as JSON on standard input, an answer on standard output."""

from __future__ import annotations

import logging
import os
import sys

import msgspec

from reconciler.notifications.channels.apprise import AppriseAnswer, AppriseRequest


def send_request(request: AppriseRequest) -> AppriseAnswer:
    """Send ``request`` to each of its services."""
    try:
        from apprise import Apprise, AppriseAsset, NotifyFormat
    except ImportError:
        return AppriseAnswer("missing")
    # Its log has URLs, which are secrets; texts of others are shown as they are.
    logging.disable(logging.CRITICAL)
    asset = AppriseAsset(secure_logging=True, async_mode=False, interpret_escapes=False, interpret_emojis=False)
    services = Apprise(asset=asset)
    for url in request.urls:
        if not services.add(url):
            return AppriseAnswer("unknown")
    sent = services.notify(
        body=request.body, title=request.title, notify_type=request.kind, body_format=NotifyFormat.TEXT
    )
    return AppriseAnswer("" if sent else "failed")


def main() -> None:
    """Answer one request. What a plugin prints goes nowhere."""
    request = msgspec.json.decode(sys.stdin.buffer.read(), type=AppriseRequest)
    answers = os.dup(sys.stdout.fileno())
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    os.write(answers, msgspec.json.encode(send_request(request)))


if __name__ == "__main__":
    main()
