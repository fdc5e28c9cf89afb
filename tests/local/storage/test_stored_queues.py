"""Queues survive a restart with what they have in flight."""

import msgspec
import pytest

from recordpublisher.local import Delays, ManualClock
from recordpublisher.local.operations.table import OPERATIONS
from recordpublisher.local.storage.account_storage import AccountStorage
from recordpublisher.local.streams.account import Account

ARN = "arn:aws:kinesis:us-east-1:000000000000:stream/orders"


class Stored:
    """An account that a folder keeps."""

    def __init__(self, folder, clock):
        self.account = Account(clock, "us-east-1", Delays(consumer=0), None)
        self.storage = AccountStorage(self.account, folder)

    def call(self, operation, **fields):
        response = msgspec.json.decode(OPERATIONS[operation](self.account, msgspec.json.encode(fields)) or b"{}")
        self.account.changed()
        return response

    def receive(self, queue, **options):
        return self.call("ReceiveQueueRecords", QueueARN=queue, **options)["QueueRecords"]


@pytest.fixture
def clock():
    return ManualClock(1_700_000_000_000)


def test_a_queue_goes_on_after_a_restart(tmp_path, clock):
    stored = Stored(tmp_path, clock)
    stored.call("CreateStream", StreamName="orders", ShardCount=2, StreamModeDetails={"StreamMode": "ON_DEMAND"})
    created = stored.call(
        "CreateQueue", QueueName="q", StreamConfigurationList=[{"StreamARN": ARN}], Tags={"team": "a"}
    )["QueueDescription"]
    queue = created["QueueARN"]
    for number in range(4):
        stored.account.find("orders").put(str(number).encode(), str(number))
    done, in_flight, released = (stored.receive(queue, Limit=1)[0] for _ in range(3))
    stored.call("AcknowledgeQueueRecords", QueueARN=queue, Entries=[{"ReceiptHandle": done["ReceiptHandle"]}])
    visible = {"ReceiptHandle": released["ReceiptHandle"], "VisibilityTimeoutSeconds": 0}
    stored.call("UpdateQueueRecordsVisibility", QueueARN=queue, Entries=[visible])
    stored.storage.close()

    again = Stored(tmp_path, clock)
    assert again.call("DescribeQueue", QueueARN=queue)["QueueDescription"] == created
    assert again.call("ListTagsForResource", ResourceARN=queue)["Tags"] == [{"Key": "team", "Value": "a"}]
    counts = {record["RecordId"]: record["ReceiveCount"] for record in again.receive(queue)}
    assert len(counts) == 2
    assert counts[released["RecordId"]] == 2
    handle = {"ReceiptHandle": in_flight["ReceiptHandle"]}
    assert again.call("AcknowledgeQueueRecords", QueueARN=queue, Entries=[handle])["Failed"] == []
    clock.advance(30_000)
    assert {record["RecordId"] for record in again.receive(queue)} == set(counts)
    again.storage.close()
