"""Random calls of a queue: each record is delivered until it is acknowledged."""

from random import Random

import msgspec
import pytest

from recordpublisher.local import Delays, ManualClock
from recordpublisher.local.account import Account
from recordpublisher.local.dispatcher import OPERATIONS
from recordpublisher.local.record_queues import Deliveries
from recordpublisher.local.stream import Stream, merge, split

MAX_RECEIVES = 3


class Run:
    """A stream, a queue, and what is known of each record by its data."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.clock = ManualClock()
        self.account = Account(self.clock, "us-east-1", Delays(consumer=0), None)
        self.stream = self.account.create_stream("orders", 2)
        self.stream.mode = "ON_DEMAND"
        self.queue = self.create("q")
        self.put: list[str] = []
        self.acknowledged: set[str] = set()
        self.held: dict[str, tuple[int, str, str]] = {}
        """By record: until when it is in flight, its handle, and `DeadLetter` or nothing."""

    def create(self, name):
        streams = [{"StreamARN": self.stream.arn}]
        dead_letters = {"TargetType": "BUILT_IN", "MaxReceiveCount": MAX_RECEIVES}
        attributes = {"DeadLetterConfiguration": dead_letters}
        made = self.call("CreateQueue", QueueName=name, StreamConfigurationList=streams, QueueAttributes=attributes)
        return made["QueueDescription"]["QueueARN"]

    def call(self, operation, **fields):
        return msgspec.json.decode(OPERATIONS[operation](self.account, msgspec.json.encode(fields)) or b"{}")

    def produce(self):
        for _ in range(self.random.randint(1, 15)):
            self.put.append(str(len(self.put)))
            self.stream.put(self.put[-1].encode(), self.put[-1])

    def reshard(self):
        shards = self.stream.open_shards
        if len(shards) > 1 and self.random.random() < 0.5:
            merge(self.stream, *shards[:2])
        else:
            split(self.stream, shards[0], (shards[0].hash_range.start + shards[0].hash_range.end) // 2)

    def receive(self, dead=None):
        dead = self.random.choice(["", "", "DeadLetter"]) if dead is None else dead
        seconds, limit = self.random.choice([0, 5, 30]), self.random.randint(1, 10)
        options = {"VisibilityTimeoutSeconds": seconds, "Limit": limit}
        records = self.call(f"Receive{dead}QueueRecords", QueueARN=self.queue, **options)["QueueRecords"]
        now = self.clock.now_ms()
        for record in records:
            data = msgspec.convert(record["Data"], bytes, strict=False).decode()
            assert data not in self.acknowledged
            assert self.held.get(data, (0,))[0] <= now, "it is in flight"
            assert dead or record["ReceiveCount"] <= MAX_RECEIVES
            self.held[data] = now + seconds * 1000, record["ReceiptHandle"], dead
        return len(records)

    def acknowledge(self):
        if self.held:
            data = self.random.choice(sorted(self.held))
            _, handle, dead = self.held[data]
            entries = [{"ReceiptHandle": handle}]
            failed = self.call(f"Acknowledge{dead}QueueRecords", QueueARN=self.queue, Entries=entries)["Failed"]
            if not failed:
                self.acknowledged.add(data)
                del self.held[data]

    def restore(self):
        dead = [data for data, (_, _, kind) in sorted(self.held.items()) if kind]
        if dead:
            entries = [{"ReceiptHandle": self.held.pop(self.random.choice(dead))[1]}]
            self.call("RestoreDeadLetterQueueRecords", QueueARN=self.queue, Entries=entries)

    def release(self):
        if self.held:
            data = self.random.choice(sorted(self.held))
            _, handle, dead = self.held[data]
            entries = [{"ReceiptHandle": handle, "VisibilityTimeoutSeconds": 0}]
            done = self.call(f"Update{dead}QueueRecordsVisibility", QueueARN=self.queue, Entries=entries)["Successful"]
            if done:
                self.held[data] = self.clock.now_ms(), handle, dead

    def wait(self):
        self.clock.advance(self.random.choice([1, 4_000, 30_000]))


@pytest.mark.parametrize("seed", range(20))
def test_nothing_is_lost_and_nothing_is_in_two_hands(seed):
    run = Run(seed)
    acts = [run.produce, run.receive, run.receive, run.acknowledge, run.acknowledge, run.release, run.restore, run.wait]
    for _ in range(300):
        run.random.choice([*acts, run.reshard] if run.random.random() < 0.1 else acts)()
    run.clock.advance(60_000)
    while run.receive("") or run.receive("DeadLetter"):
        run.clock.advance(60_000)
        while run.held:
            run.acknowledge()
            run.held = {data: each for data, each in run.held.items() if data not in run.acknowledged}
            if run.random.random() < 0.2:
                break
        run.held.clear()
    assert run.acknowledged == set(run.put)


def test_who_waits_is_not_woken_for_records_that_were_acknowledged():
    stream = Stream("arn:aws:kinesis:us-east-1:000000000000:stream/orders", 1, ManualClock())
    deliveries = Deliveries(stream)
    now = stream.clock.now_ms()
    for number in range(3):
        stream.put(b"x", str(number))
    first, second, third = (deliveries.receive(1, now + number, now, 6, dead=False)[0][0] for number in (10, 20, 30))
    deliveries.acknowledge(first)
    deliveries.hide(second, now + 40)

    assert deliveries.next_timeout_ms() == now + 30
    deliveries.acknowledge(third)
    assert deliveries.next_timeout_ms() == now + 40
