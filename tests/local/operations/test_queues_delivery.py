"""A queue delivers each record until it is acknowledged: visibility, receipt handles, dead letters, starts, retention, faults."""

import pytest

from recordpublisher.local.errors import ApiError
from recordpublisher.local.stream import update_shard_count

ARN = "arn:aws:kinesis:us-east-1:000000000000:stream/orders"
HOUR_MS = 3_600_000


@pytest.fixture(autouse=True)
def orders(call, account):
    call("CreateStream", StreamName="orders", ShardCount=2, StreamModeDetails={"StreamMode": "ON_DEMAND"})
    return account.find("orders")


@pytest.fixture
def create(call):
    def create(name="q", start="TRIM_HORIZON", timestamp=None, **attributes) -> str:
        position = {"Type": start} if timestamp is None else {"Type": start, "Timestamp": timestamp}
        streams = [{"StreamARN": ARN, "StartingPosition": position}]
        created = call("CreateQueue", QueueName=name, StreamConfigurationList=streams, QueueAttributes=attributes)
        return created["QueueDescription"]["QueueARN"]

    return create


@pytest.fixture
def receive(call):
    return lambda queue, dead="", **options: call(f"Receive{dead}QueueRecords", QueueARN=queue, **options)[
        "QueueRecords"
    ]


@pytest.fixture
def settle(call):
    """Call an operation for the handles of records, and return the codes of those that failed."""

    def settle(operation, queue, records, **entry):
        entries = [{"ReceiptHandle": record["ReceiptHandle"], **entry} for record in records]
        return [failed["ErrorCode"] for failed in call(operation, QueueARN=queue, Entries=entries)["Failed"]]

    return settle


def data(records):
    return sorted(record["Data"] for record in records)


def test_a_record_is_in_flight_until_its_timeout_and_then_delivered_again(create, receive, clock, orders):
    queue = create(VisibilityTimeoutSeconds=5)
    orders.put(b"x", "k")
    (first,) = receive(queue)
    clock.advance(4_999)
    assert receive(queue) == []
    clock.advance(1)
    (second,) = receive(queue)

    assert (first["ReceiveCount"], second["ReceiveCount"]) == (1, 2)
    assert first["ReceiptHandle"] != second["ReceiptHandle"]
    same = ("RecordId", "Data", "PartitionKey", "FirstReceiveTimestamp", "ApproximateArrivalTimestamp")
    assert {name: first[name] for name in same} == {name: second[name] for name in same}
    assert "SequenceNumber" not in first


def test_a_receive_may_have_its_own_timeout(create, receive, clock, orders):
    queue = create()
    orders.put(b"x", "k")
    receive(queue, VisibilityTimeoutSeconds=0)
    assert len(receive(queue, VisibilityTimeoutSeconds=2)) == 1
    clock.advance(2_000)
    assert len(receive(queue)) == 1


def test_an_acknowledged_record_is_not_delivered_again(create, receive, settle, clock, orders):
    queue = create()
    orders.put(b"x", "k")
    assert settle("AcknowledgeQueueRecords", queue, receive(queue)) == []
    clock.advance(HOUR_MS)
    assert receive(queue) == []


def test_a_record_that_timed_out_can_be_acknowledged_until_it_is_received_again(create, receive, settle, clock, orders):
    queue = create()
    orders.put(b"x", "k")
    first = receive(queue)
    clock.advance(30_000)
    second = receive(queue)
    assert settle("AcknowledgeQueueRecords", queue, first) == ["InvalidArgumentException"]
    clock.advance(30_000)
    assert settle("AcknowledgeQueueRecords", queue, second) == []
    assert settle("AcknowledgeQueueRecords", queue, second) == ["ResourceNotFoundException"]
    assert receive(queue) == []


def test_each_handle_has_a_result_of_its_own(create, receive, settle, orders):
    queue, other = create(), create("other")
    orders.put(b"x", "k")
    (record,) = receive(queue)
    strange = [{"ReceiptHandle": "made-up"}, *receive(other), record]
    assert settle("AcknowledgeQueueRecords", queue, strange) == ["InvalidArgumentException"] * 2


def test_visibility_is_changed_record_by_record(create, receive, settle, clock, orders):
    queue = create()
    orders.put(b"x", "k")
    assert settle("UpdateQueueRecordsVisibility", queue, receive(queue), VisibilityTimeoutSeconds=0) == []
    again = receive(queue)
    assert settle("UpdateQueueRecordsVisibility", queue, again, VisibilityTimeoutSeconds=100) == []
    clock.advance(99_999)
    assert receive(queue) == []
    clock.advance(1)
    assert len(receive(queue)) == 1


def test_a_record_received_too_often_becomes_a_dead_letter(create, receive, settle, clock, orders):
    queue = create(DeadLetterConfiguration={"TargetType": "BUILT_IN", "MaxReceiveCount": 2})
    orders.put(b"x", "k")
    for _ in range(2):
        (last,) = receive(queue)
        clock.advance(30_000)
    assert receive(queue) == []
    assert settle("AcknowledgeQueueRecords", queue, [last]) == ["ResourceNotFoundException"]

    dead = receive(queue, "DeadLetter")
    assert dead[0]["RecordId"] == last["RecordId"]
    assert receive(queue, "DeadLetter") == []
    assert settle("UpdateDeadLetterQueueRecordsVisibility", queue, dead, VisibilityTimeoutSeconds=0) == []
    dead = receive(queue, "DeadLetter")
    assert settle("AcknowledgeDeadLetterQueueRecords", queue, dead) == []
    clock.advance(30_000)
    assert receive(queue, "DeadLetter") == receive(queue) == []


def test_a_restored_dead_letter_is_received_as_often_as_a_new_record(create, receive, settle, clock, orders):
    queue = create(DeadLetterConfiguration={"TargetType": "BUILT_IN", "MaxReceiveCount": 1})
    orders.put(b"x", "k")
    receive(queue)
    clock.advance(30_000)
    assert settle("RestoreDeadLetterQueueRecords", queue, receive(queue, "DeadLetter")) == []
    (restored,) = receive(queue)
    assert restored["ReceiveCount"] == 1
    clock.advance(30_000)
    assert len(receive(queue, "DeadLetter")) == 1


def test_without_dead_letters_a_record_is_delivered_for_ever(create, receive, clock, orders):
    queue = create(DeadLetterConfiguration={"TargetType": "NONE"})
    orders.put(b"x", "k")
    for count in range(1, 20):
        assert [record["ReceiveCount"] for record in receive(queue)] == [count]
        clock.advance(30_000)


def test_queues_of_a_stream_deliver_each_record_by_the_same_id(create, receive, settle, orders):
    first, second = create("first"), create("second")
    orders.put(b"x", "k")
    (seen,) = receive(first)
    settle("AcknowledgeQueueRecords", first, [seen])
    assert [record["RecordId"] for record in receive(second)] == [seen["RecordId"]]


def test_a_queue_begins_where_it_was_told(create, receive, clock, orders):
    orders.put(b"a", "k")
    clock.advance(10_000)
    middle = clock.now_ms()
    orders.put(b"b", "k")
    clock.advance(10_000)
    queues = [
        create("oldest", "TRIM_HORIZON"),
        create("middle", "AT_TIMESTAMP", middle / 1000),
        create("newest", "LATEST"),
    ]
    orders.put(b"c", "k")
    assert [len(receive(queue)) for queue in queues] == [3, 2, 1]


def test_records_of_new_shards_are_delivered(create, receive, orders):
    queue = create(start="LATEST")
    orders.put(b"x", "k")
    update_shard_count(orders, 4)
    for number in range(8):
        orders.put(b"y", str(number))
    assert len(receive(queue)) == 9


def test_a_queue_does_not_keep_records_past_retention(create, receive, settle, clock, orders):
    queue = create()
    orders.put(b"a", "k")
    orders.put(b"b", "l")
    records = receive(queue, Limit=1)
    clock.advance(24 * HOUR_MS + 1)
    assert receive(queue) == []
    assert settle("AcknowledgeQueueRecords", queue, records) == ["ResourceNotFoundException"]


def test_a_receive_has_as_many_records_as_it_asks_for(create, receive, orders):
    queue = create()
    for number in range(13):
        orders.put(b"x", str(number))
    assert [len(receive(queue, Limit=2)), len(receive(queue)), len(receive(queue))] == [2, 10, 1]


def test_a_receive_is_not_larger_than_a_read(create, receive, orders):
    queue = create()
    for number in range(4):
        orders.put(bytes(3 << 20), str(number))
    assert [len(receive(queue)), len(receive(queue))] == [2, 2]


def test_redelivered_and_new_records_take_turns(create, receive, clock, orders):
    queue = create(VisibilityTimeoutSeconds=0, DeadLetterConfiguration={"TargetType": "NONE"})
    for number in range(6):
        orders.put(str(number).encode(), str(number))
    counts = [receive(queue, Limit=1)[0]["ReceiveCount"] for _ in range(8)]
    assert counts.count(1) == 4


def test_a_queue_being_deleted_delivers_nothing_and_its_handles_are_void(create, receive, settle, orders, account):
    queue = create()
    orders.put(b"x", "k")
    records = receive(queue)
    account.queues.find(queue).set_busy("DELETING", account.clock.now_ms() + 1)
    with pytest.raises(ApiError, match=r"^ResourceNotFoundException"):
        receive(queue)
    with pytest.raises(ApiError, match=r"^ResourceNotFoundException"):
        settle("AcknowledgeQueueRecords", queue, records)


def test_a_planned_fault_refuses_single_handles(create, receive, settle, orders, account):
    queue = create()
    for number in range(3):
        orders.put(b"x", str(number))
    account.faults.fail_entries(2, "InternalFailureException")
    assert settle("AcknowledgeQueueRecords", queue, receive(queue)) == ["InternalFailureException"] * 2


def test_a_fault_delivers_an_acknowledged_record_again(create, receive, settle, orders, account):
    queue = create()
    orders.put(b"x", "k")
    account.faults.redeliver_next()
    first = receive(queue)
    assert settle("AcknowledgeQueueRecords", queue, first) == []
    again = receive(queue)
    assert [(record["RecordId"], record["ReceiveCount"]) for record in again] == [(first[0]["RecordId"], 1)]
    assert settle("AcknowledgeQueueRecords", queue, again) == []
    assert receive(queue) == []


def test_faults_of_handles_are_drawn_by_rules(create, receive, settle, orders, account):
    queue = create()
    account.faults.start_random("partial@AcknowledgeQueueRecords=0.5,redeliver=0.5", seed=1)
    for number in range(10):
        orders.put(b"x", str(number))
    refused = settle("AcknowledgeQueueRecords", queue, receive(queue))
    counts = account.faults.stop_random()
    assert refused == ["ThrottlingException"] * counts["partial"]
    assert len(receive(queue)) == counts["redeliver"]
    assert 0 < counts["partial"] < 10
    assert 0 < counts["redeliver"] < 10
