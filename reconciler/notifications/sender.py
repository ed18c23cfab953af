"""The sender: one task of the daemon makes deliveries of what is new, and one for each channel sends them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

import msgspec

from reconciler.bugs import internal_error
from reconciler.clock import Clock
from reconciler.errors import RecordsError
from reconciler.logs import log
from reconciler.notifications.channels.channel import Channel, SendError, SendFailed, SendRefused
from reconciler.notifications.channels.secret_files import make_secret_files
from reconciler.notifications.collector import Collector
from reconciler.notifications.message import EventType, Message
from reconciler.notifications.outbox import decode_message
from reconciler.notifications.retries import FIRST_WAIT, PAUSE_SECONDS, Retries
from reconciler.reasons import ConditionType, Reason
from reconciler.records.notifications.deliveries import Delivery, DeliveryStatus
from reconciler.records.store import Records
from reconciler.records.tables.conditions import CHANNEL
from reconciler.settings import Settings
from reconciler.settings.notifications import NotificationSettings
from reconciler.status.conditions import make_condition
from reconciler.tasks import cancel_and_wait

if TYPE_CHECKING:
    from reconciler.notifications.heartbeat import Heartbeat

POLL_SECONDS = 1.0
"""Seconds between two looks at the records; the daemon and commands write there."""
SEND_SECONDS = 60.0
"""Seconds that a channel may take for a message."""
GIVE_UP_SECONDS = 3 * 86_400.0
"""Seconds after which a message that never arrives is given up."""

Result = TypeVar("Result")


def channel_scope(channel: str) -> str:
    """The scope of the conditions of ``channel``, in place of the name of a source."""
    return f"{CHANNEL}{channel}"


class Sender:
    """Works off the outbox with a connection to the records of its own. One channel never waits for another.

    With ``in_threads``, the event loop does not wait for the disk.
    """

    def __init__(
        self,
        settings: Settings,
        records: Records,
        clock: Clock,
        channels: Mapping[str, Channel],
        make_link: Callable[[Message], str] = lambda _: "",
        *,
        in_threads: bool = True,
    ) -> None:
        self._records = records
        self._clock = clock
        self._channels = channels
        self._make_link = make_link
        self._in_threads = in_threads
        self._collector = Collector(settings, records, clock)
        self._lock = asyncio.Lock()
        self._wakes = {name: asyncio.Event() for name in channels}
        self._opened = asyncio.Event()
        self._version = -1
        self.tasks: list[asyncio.Task[None]] = []
        self._heartbeat = _make_heartbeat(settings)

    def open(self) -> None:
        """Begin to collect and to send."""
        self.tasks = [asyncio.create_task(self._collect(), name="notifications")]
        self.tasks += [
            asyncio.create_task(self._serve(channel), name=f"channel {name}")
            for name, channel in self._channels.items()
        ]

        if self._heartbeat is not None:
            self.tasks.append(asyncio.create_task(self._beat(self._heartbeat), name="heartbeat"))

    async def close(self) -> None:
        """Stop; what is being sent may be sent again, marked."""
        await cancel_and_wait(self.tasks, "notifications")
        for used in (*self._channels.values(), *((self._heartbeat,) if self._heartbeat is not None else ())):
            with suppress(Exception):
                await used.close()

    async def _beat(self, heartbeat: Heartbeat) -> None:
        """Give a sign of life at intervals. One that fails is a line of the log: its receiver notices by itself."""
        await self._opened.wait()
        failed = ""
        while True:
            try:
                await heartbeat.beat(await self._use_records(list_troubles_of_daemon, self._records))
                answer = ""
            except (RecordsError, SendError) as error:
                answer = str(error)
            except Exception as error:  # noqa: BLE001 - the next one is due all the same
                answer = str(internal_error(error, "heartbeat"))
            if answer != failed:
                log().info("heartbeat", sent=not answer, message=answer)
            failed = answer
            await self._clock.sleep(heartbeat.settings.interval)

    async def _collect(self) -> None:
        while True:
            try:
                await self._collect_once()
            except RecordsError as error:
                log().warning("notifications", reason=error.reason, message=str(error))
            except Exception as error:  # noqa: BLE001 - a bug here must not end the notifications of other events
                internal_error(error, "notifications")
            await self._clock.sleep(POLL_SECONDS)

    async def _collect_once(self) -> None:
        if not self._opened.is_set():
            await self._use_records(self._collector.open)
            self._opened.set()
        if await self._use_records(self._collect_news):
            for wake in self._wakes.values():
                wake.set()

    def _collect_news(self) -> bool:
        """Make deliveries of what is new; returns whether there may be something to send."""
        version, due = self._records.data_version(), self._collector.next_due()
        if version == self._version and (due is None or due > self._clock.now()):
            return False
        self._collector.collect()
        self._version = version
        return True

    async def _serve(self, channel: Channel) -> None:
        """Send what is due for ``channel``, in its order, but for messages that fail alone."""
        await self._opened.wait()
        retries, is_cut_off = Retries(), False
        while True:
            try:
                if is_cut_off:
                    await self._use_records(self._records.deliveries.recover, channel.name)
                    is_cut_off = False
                delivery = await self._use_records(self._take, channel.name, retries)
                if delivery is not None:
                    pause = await self._send(channel, delivery, retries)
                elif retries.is_probing:
                    pause = retries.skip_probe()
                else:
                    await self._wait_for_work(channel.name)
                    continue
            except RecordsError as error:
                log().warning("notifications", reason=error.reason, message=str(error))
                # How the message ended could not be recorded.
                pause, is_cut_off = FIRST_WAIT, True
            await self._clock.sleep(pause)

    async def _wait_for_work(self, name: str) -> None:
        wake = self._wakes[name]
        await wake.wait()
        wake.clear()

    def _take(self, channel: str, retries: Retries) -> Delivery | None:
        """The next delivery, which is marked as being sent before it is; one that is no first one as a probe."""
        deliveries, now = self._records.deliveries, self._clock.now()
        delivery = deliveries.next_waiting(channel, now)
        if delivery is not None and retries.is_probing:
            first = delivery.id
            delivery = deliveries.next_waiting(channel, now, max(first, retries.probed))
            delivery = delivery or deliveries.next_waiting(channel, now, first)
        if delivery is not None:
            deliveries.begin(delivery.id)
        return delivery

    async def _send(self, channel: Channel, delivery: Delivery, retries: Retries) -> float:
        """Send ``delivery``; returns the seconds until the next one."""
        message = decode_message(delivery)
        reference = await self._use_records(self._records.deliveries.find_reference, delivery)
        try:
            message = _with_link(message, self._make_link)
            async with asyncio.timeout(SEND_SECONDS):
                answer = await channel.send(message, reference)
        except SendRefused as error:
            retries.succeed(delivery.id)
            await self._use_records(self._end, delivery, DeliveryStatus.REFUSED, str(error), "")
            return PAUSE_SECONDS
        except SendFailed as error:
            failure = error
        except TimeoutError:
            failure = SendFailed(f"no answer in {SEND_SECONDS:.0f} s", reached=True)
        except Exception as error:  # noqa: BLE001 - a bug of one channel must not end the others
            failure = SendFailed(str(internal_error(error, f"channel {channel.name}")), reached=True)
        else:
            retries.succeed(delivery.id)
            await self._use_records(self._end, delivery, DeliveryStatus.SENT, "", answer)
            return PAUSE_SECONDS
        wait = retries.fail(delivery.id, failure.retry_after)
        if not await self._use_records(self._fail, delivery, failure, wait.message):
            retries.forget(delivery.id)
        return wait.channel

    def _end(self, delivery: Delivery, status: DeliveryStatus, answer: str, reference: str) -> None:
        sent = status is DeliveryStatus.SENT
        with self._records.transaction():
            self._records.deliveries.end(delivery.id, status, self._clock.now(), answer, reference)
            self._set_condition(delivery.channel, sent, Reason.SENT if sent else Reason.SEND_REFUSED, answer)

    def _fail(self, delivery: Delivery, failure: SendFailed, wait: float) -> bool:
        """Record that ``delivery`` was not sent; returns whether it is tried again, ``wait`` seconds from now."""
        now, answer, deliveries = self._clock.now(), str(failure), self._records.deliveries
        with self._records.transaction():
            newer = deliveries.find_newer(delivery)
            is_over = newer is not None or now - delivery.created >= GIVE_UP_SECONDS
            if is_over:
                newest = "" if newer is None else f"; the message {newer}, about the same, takes its place"
                deliveries.end(delivery.id, DeliveryStatus.EXPIRED, now, f"{answer}{newest}")
            else:
                deliveries.wait_again(delivery.id, answer, now + wait, may_repeat=failure.reached)
            self._set_condition(delivery.channel, False, Reason.SEND_FAILED, answer)
        return not is_over

    def _set_condition(self, channel: str, sent: bool, reason: Reason, message: str) -> None:
        condition = make_condition(ConditionType.NOTIFYING, sent, reason, message)
        if self._records.conditions.set(channel_scope(channel), condition):
            log().info("notification", channel=channel, sent=sent, reason=str(reason), message=message)

    async def _use_records(self, call: Callable[..., Result], *args: object) -> Result:
        """Call ``call`` in a thread, one at a time: a connection belongs to one thread at a time."""
        if not self._in_threads:
            return call(*args)
        async with self._lock:
            work = asyncio.ensure_future(asyncio.to_thread(call, *args))
            try:
                return await asyncio.shield(work)
            except asyncio.CancelledError:
                # The thread goes on, and the lock is released only when it has ended.
                await asyncio.wait({work})
                raise


def _make_heartbeat(settings: Settings) -> Heartbeat | None:
    if settings.notifications is None or settings.notifications.heartbeat is None:
        return None
    from reconciler.notifications.heartbeat import Heartbeat  # with a client that others do without

    return Heartbeat(settings.notifications.heartbeat, make_secret_files(settings))


def list_troubles_of_daemon(records: Records) -> list[str]:
    """A line for each trouble of the last runs, and of the daemon itself. Raises RecordsError."""
    kinds = (EventType.RUN, EventType.DAEMON)
    troubles = [trouble for trouble in records.troubles.all() if trouble.event in kinds]
    return [f"{trouble.key or 'the daemon'}: {trouble.reason}: {trouble.message}" for trouble in troubles]


def _with_link(message: Message, make_link: Callable[[Message], str]) -> Message:
    return message if message.link else msgspec.structs.replace(message, link=make_link(message))


def forget_channels(records: Records, settings: NotificationSettings | None) -> None:
    """Remove the conditions of channels and forges that ``settings`` do not have. Raises RecordsError."""
    names = () if settings is None else (*settings.channels, *settings.forges)
    known = {channel_scope(name) for name in names}
    for scope in records.conditions.scopes_below(CHANNEL):
        if scope not in known:
            records.conditions.forget(scope)
