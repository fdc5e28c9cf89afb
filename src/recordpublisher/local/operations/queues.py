"""Queues: their settings, long polls, acknowledgements, visibility and dead letters."""

from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from .. import requests
from ..account import Account
from ..errors import ApiError, invalid_argument, invalid_input
from ..record_queues import DEFAULT_SETTINGS, Delivery, Queue, ReceiptHandle, record_id
from ..shard import start_counter
from ..stream import HOUR_MS, Stream
from .streams import page_by_name

NOTHING_VISIBLE = b'{"QueueRecords":[]}'
LONG_POLLS = ("ReceiveQueueRecords", "ReceiveDeadLetterQueueRecords")
STATUSES_WITHOUT_DELIVERY = ("CREATING", "DELETING")
MOST_ON_A_PAGE = 100


def create_queue(account: Account, request: requests.CreateQueue) -> object:
    """Create a queue that begins at a position of its stream. It becomes ACTIVE after `Delays.consumer`."""
    stream = _on_demand_stream(account, request.stream_configuration_list)
    start = request.stream_configuration_list[0].starting_position
    if (start.type == "AT_TIMESTAMP") != (start.timestamp is not None):
        raise invalid_input("A Timestamp is needed with AT_TIMESTAMP, and only with it.")
    changes = _changes(request.queue_attributes)
    stream.consumers.require_room(len(account.queues.all(stream)))
    now = account.clock.now_ms()
    stream.apply_retention()
    cursors = {s.id: start_counter(s, start.type, None, start.timestamp, now) for s in stream.shards.values()}
    settings = {**DEFAULT_SETTINGS, **changes, "StartingPosition": _effective(stream, start, now)}
    queue = account.queues.create(request.queue_name, stream, settings, request.tags or {}, account.delays.consumer)
    queue.deliveries.begin(cursors)
    return _described(account, queue)


def describe_queue(account: Account, request: requests.QueueRequest) -> object:
    """Describe a queue."""
    return _described(account, account.queues.find(request.queue_arn))


def list_queues(account: Account, request: requests.ListQueues) -> object:
    """List the queues by name, page by page."""
    chosen = [queue for queue in account.queues.all() if _is_wanted(queue.stream, request.stream_filter)]
    most = min(request.max_results, MOST_ON_A_PAGE)
    page, token = page_by_name(account, "QueueSummaries", chosen, request.next_token, most)
    return {"QueueSummaries": [_summary(account, queue) for queue in page], **token}


def update_queue(account: Account, request: requests.UpdateQueue) -> object:
    """Change the visibility timeout, the handling of dead letters, or both, from now on."""
    queue = account.queues.find(request.queue_arn)
    changes = _changes(request.queue_attributes)
    now = account.clock.now_ms()
    queue.require_active(now)
    queue.settings |= changes
    queue.set_busy("UPDATING", now + account.delays.consumer)
    queue.notify()
    return _described(account, queue)


def delete_queue(account: Account, request: requests.QueueRequest) -> None:
    """Begin to delete a queue. From now on it delivers nothing."""
    queue = account.queues.find(request.queue_arn)
    if queue.busy_status != "DELETING":
        queue.set_busy("DELETING", account.clock.now_ms() + account.delays.consumer)
    queue.notify()


def receive_queue_records(account: Account, request: requests.ReceiveRequest) -> bytes:
    """Receive the records that are visible now. The dispatcher repeats the call for WaitTimeSeconds until there are any."""
    return _receive(account, request, dead=False)


def receive_dead_letter_queue_records(account: Account, request: requests.ReceiveRequest) -> bytes:
    """Receive the dead letters that are visible now. The dispatcher repeats the call for WaitTimeSeconds until there are any."""
    return _receive(account, request, dead=True)


def acknowledge_queue_records(account: Account, request: requests.ReceiptsRequest) -> object:
    """Acknowledge records: the queue no longer delivers them.

    The fault `redeliver` makes a queue deliver a record again, although the response says that it was acknowledged.
    """

    def act(queue: Queue, delivery: Delivery, _: requests.ReceiptEntry) -> None:
        if account.faults.take_redelivery():
            queue.deliveries.release(delivery, account.clock.now_ms(), delivery.receive_count - 1)
        else:
            queue.deliveries.acknowledge(delivery)

    return _each("AcknowledgeQueueRecords", account, request, act, dead=False)


def acknowledge_dead_letter_queue_records(account: Account, request: requests.ReceiptsRequest) -> object:
    """Discard dead letters."""

    def act(queue: Queue, delivery: Delivery, _: requests.ReceiptEntry) -> None:
        queue.deliveries.acknowledge(delivery)

    return _each("AcknowledgeDeadLetterQueueRecords", account, request, act, dead=True)


def restore_dead_letter_queue_records(account: Account, request: requests.ReceiptsRequest) -> object:
    """Turn dead letters into records again. Their receive count is 0, as that of a new record."""

    def act(queue: Queue, delivery: Delivery, _: requests.ReceiptEntry) -> None:
        queue.deliveries.release(delivery, account.clock.now_ms(), 0)

    return _each("RestoreDeadLetterQueueRecords", account, request, act, dead=True)


def update_queue_records_visibility(account: Account, request: requests.VisibilityUpdate) -> object:
    """Hide records for the given time from now on. 0 makes them visible."""
    return _each("UpdateQueueRecordsVisibility", account, request, partial(_hide, account), dead=False)


def update_dead_letter_queue_records_visibility(account: Account, request: requests.VisibilityUpdate) -> object:
    """Hide dead letters for the given time from now on. 0 makes them visible."""
    return _each("UpdateDeadLetterQueueRecordsVisibility", account, request, partial(_hide, account), dead=True)


def _hide(account: Account, queue: Queue, delivery: Delivery, entry: requests.VisibilityEntry) -> None:
    queue.deliveries.hide(delivery, account.clock.now_ms() + entry.visibility_timeout_seconds * 1000)


def _receive(account: Account, request: requests.ReceiveRequest, *, dead: bool) -> bytes:
    queue = account.queues.find(request.queue_arn, refused=STATUSES_WITHOUT_DELIVERY)
    seconds, now = request.visibility_timeout_seconds, account.clock.now_ms()
    visible_ms = now + (queue.visibility_seconds if seconds is None else seconds) * 1000
    records = queue.deliveries.receive(request.limit, visible_ms, now, queue.max_receives, dead=dead)
    return b'{"QueueRecords":[%b]}' % b",".join(_record(account, queue, *each) for each in records)


def _record(account: Account, queue: Queue, delivery: Delivery, fragment: bytes) -> bytes:
    """Return a record as a queue delivers it: as JSON from the log of the shard (`fragment`), but without its sequence number."""
    shard_id, counter = delivery.key
    shown = {
        "ReceiptHandle": account.tokens.make(queue.handle_of(delivery)),
        "RecordId": record_id(queue.stream.shards[shard_id], counter),
        "FirstReceiveTimestamp": delivery.first_ms / 1000,
        "ReceiveCount": delivery.receive_count,
    }
    without_number = fragment.partition(b",")[2]
    return b"%b,%b" % (msgspec.json.encode(shown)[:-1], without_number)


def _each(
    operation: str, account: Account, request: Any, act: Callable[[Queue, Delivery, Any], None], *, dead: bool
) -> dict[str, object]:
    """Find the record of each receipt handle in a request, and call `act` for it. Return the response, with the handles that failed.

    `dead`: whether the records are dead letters.
    """
    queue = account.queues.find(request.queue_arn, refused=("DELETING",))
    successful, failed = [], []
    for entry in request.entries:
        result = {"ReceiptHandle": entry.receipt_handle}
        try:
            account.faults.check_entry(operation)
            handle = account.tokens.open(entry.receipt_handle, ReceiptHandle)
            act(queue, queue.find(handle, account.clock.now_ms(), dead=dead), entry)
            successful.append(result)
        except ApiError as error:
            failed.append({**result, "ErrorCode": error.code, "ErrorMessage": error.message})
    queue.notify()
    return {"Successful": successful, "Failed": failed}


def _changes(attributes: requests.QueueAttributes) -> dict[str, Any]:
    dead_letters = attributes.dead_letter_configuration
    if dead_letters is not None and dead_letters.target_type == "BUILT_IN" and dead_letters.max_receive_count is None:
        raise invalid_argument("MaxReceiveCount is required for a dead-letter queue of type BUILT_IN.")
    changes: dict[str, Any] = msgspec.to_builtins(attributes)
    return changes


def _effective(stream: Stream, start: requests.QueueStartingPosition, now_ms: int) -> dict[str, object]:
    """Return a queue's starting position for its description, with the time of the oldest record that can be delivered."""
    horizon_ms = max(stream.created_ms, now_ms - stream.retention_hours * HOUR_MS)
    wanted_ms = {"LATEST": now_ms, "TRIM_HORIZON": 0}.get(start.type, round((start.timestamp or 0) * 1000))
    return {"Type": start.type, "Timestamp": max(horizon_ms, wanted_ms) / 1000, "Requested": start.timestamp}


def _described(account: Account, queue: Queue) -> object:
    settings = dict(queue.settings)
    start = dict(settings.pop("StartingPosition"))
    requested = start.pop("Requested")
    if queue.status(account.clock.now_ms()) == "CREATING":
        start = {"Type": start["Type"]} if requested is None else {**start, "Timestamp": requested}
    streams = [{"StreamARN": queue.stream.arn, "StartingPosition": start}]
    shown = {**_identity(account, queue), "StreamConfigurationList": streams, "QueueAttributes": settings}
    return {"QueueDescription": shown}


def _summary(account: Account, queue: Queue) -> object:
    stream = {"StreamARN": queue.stream.arn, "StreamCreationTimestamp": queue.stream.created_ms / 1000}
    return {**_identity(account, queue), "Streams": [stream]}


def _identity(account: Account, queue: Queue) -> dict[str, object]:
    """Return the fields with which every description of a queue begins."""
    return {
        "QueueName": queue.name,
        "QueueARN": queue.arn,
        "QueueStatus": queue.status(account.clock.now_ms()),
        "QueueCreationTimestamp": queue.created_ms / 1000,
    }


def _on_demand_stream(account: Account, configurations: list[requests.QueueStreamConfiguration]) -> Stream:
    """Return the only stream that a request names.

    Raises: InvalidArgumentException if the request names several streams, or one that is provisioned.
    """
    if len(configurations) != 1:
        raise invalid_argument("StreamConfigurationList must have exactly one entry.")
    stream = account.find(arn=configurations[0].stream_arn)
    stream.require_active()
    if stream.mode != "ON_DEMAND":
        raise invalid_argument(f"Stream {stream.name} is {stream.mode}; queues need ON_DEMAND.")
    return stream


def _is_wanted(stream: Stream, wanted: list[requests.StreamFilter] | None) -> bool:
    return wanted is None or any(
        each.stream_arn == stream.arn and each.stream_creation_timestamp in (None, stream.created_ms / 1000)
        for each in wanted
    )
