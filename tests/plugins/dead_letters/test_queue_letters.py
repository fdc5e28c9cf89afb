"""Dead letters of a queue: listed without being taken, restored, and discarded; by the commands, against the embedded endpoint."""

import asyncio
import json
from contextlib import aclosing

import pytest

import recordpublisher as rp
from recordpublisher.local import serve_in_thread
from recordpublisher.plugins.dead_letters.letters_in_queue import HIDDEN_SECONDS, QueueLetters
from recordpublisher.plugins.dead_letters.replay import DropTarget, replay_letters
from recordpublisher.publishers.kinesis.management import ManagementClient
from recordpublisher.publishers.kinesis_queue_source import QueueClient, ReceivedRecord

from processes.command_line import several_commands
from servers.kpl_aggregates import aggregate


async def dead_queue(properties, served):
    """A queue with three dead letters."""
    async with ManagementClient(rp.Properties(properties)) as client:
        mode = {"StreamMode": "ON_DEMAND"}
        await client._call("CreateStream", StreamName="orders", StreamModeDetails=mode)
    async with QueueClient(rp.Properties(properties)) as client:
        stream = await client.stream_arn("orders")
        for payload in (b"one", b"two", b"\xff"):
            served.call(served.endpoint.account.find, "orders").put(payload, "k")
        start = [{"StreamARN": stream, "StartingPosition": {"Type": "TRIM_HORIZON"}}]
        dead = {"TargetType": "BUILT_IN", "MaxReceiveCount": 1}
        attributes = {"DeadLetterConfiguration": dead, "VisibilityTimeoutSeconds": 30}
        made = await client._call(
            "CreateQueue", QueueName="work", StreamConfigurationList=start, QueueAttributes=attributes
        )
        arn = made["QueueDescription"]["QueueARN"]
        while (await client.describe_queue(arn)).status != "ACTIVE":  # noqa: ASYNC110 - as a person would
            await asyncio.sleep(0.05)
        while received := await client.receive(arn, 1, 30):
            await client.settle("UpdateQueueRecordsVisibility", arn, [record.handle for record in received], 0)
        return arn


@pytest.mark.slow
async def test_letters_are_listed_again_and_again_restored_and_dropped(tmp_path):
    with serve_in_thread() as served:
        given = served.properties()
        arn = await dead_queue(given, served)
        job = tmp_path / "job.properties"
        more = {"flink.stream.recordpublisher": "QUEUE", "flink.queue.name": "work", "flink.streams": "orders"}
        job.write_text("\n".join(f"{key}={value}" for key, value in {**given, **more}.items()))

        def dead_letters(*commands):
            given = [["dead-letters", words[0], str(job), *words[1:], "--queue"] for words in commands]
            return [done.stdout for done in several_commands(served, *given)]

        (listed,) = dead_letters(["list"])
        numbers = [row.split()[1] for row in listed.splitlines()[1:]]
        assert len(numbers) == 3
        shown, dropped, one, left, rest, none = dead_letters(
            ["show", numbers[0]],
            ["drop", numbers[0]],
            ["replay", "--only", numbers[1]],
            ["list"],
            ["replay"],
            ["list"],
        )
        assert json.loads(shown)["sequenceNumber"] == numbers[0]
        assert dropped == "Dropped: 1.\n"
        assert one == rest == "Replayed: 1. Failed again and kept: 0.\n"
        assert [row.split()[1] for row in left.splitlines()[1:]] == [numbers[2]]
        assert len(none.splitlines()) <= 1
        async with QueueClient(rp.Properties(given)) as client:
            back = [record.record_id for _ in range(2) for record in await client.receive(arn, 1, 30)]
        assert sorted(back) == sorted(numbers[1:])


class QueueOfTheDead:
    """Dead letters, which a receive hides for its time. Each receipt has another handle."""

    last_response_ms = None

    def __init__(self, count):
        self.now, self.receives, self.shown_by = 0.0, 0, []
        self._hidden_until = {f"id-{number}": 0.0 for number in range(count)}

    async def queue_arn(self):
        return "arn"

    def client(self):
        return self

    async def receive(self, arn, wait_seconds, visibility_seconds, *, are_dead):
        self.receives += 1
        assert self.receives < 50, "the replay does not end"
        found = [each for each, until in self._hidden_until.items() if until <= self.now][:10]
        self._hidden_until.update(dict.fromkeys(found, self.now + visibility_seconds))
        return [ReceivedRecord(f"{each} at {self.now}", each, b"", 1.0, 7) for each in found]

    async def settle(self, api, arn, handles, visibility_seconds=None):
        self.shown_by = [*handles]
        return {}


class SlowFailure:
    """Each letter fails, after retries that take long."""

    def __init__(self, queue):
        self._queue = queue

    async def replay(self, letters):
        self._queue.now += len(letters) * HIDDEN_SECONDS / 25
        return dict.fromkeys((letter.key for letter in letters), "no")


async def test_letters_that_fail_slowly_are_replayed_once():
    """They are visible again before the last one is replayed."""
    given = {"flink.streams": "orders", "flink.queue.name": "work", "aws.region": "eu-west-1"}
    letters, queue = QueueLetters(rp.Properties(given), restores=False), QueueOfTheDead(35)
    letters._queue = queue

    failed = [letter.number async for _, kept in replay_letters(letters, SlowFailure(queue)) for letter, _ in kept]

    assert sorted(failed) == sorted(f"id-{number}" for number in range(35))
    assert len(queue.shown_by) == 35


class OneLetter:
    """A queue with one dead letter, and the calls that were made until it was closed."""

    last_response_ms = None

    def __init__(self, data=b"x"):
        self.letters, self.calls, self.is_closed = [ReceivedRecord("handle", "id", data, 1.7e9, 7, "k")], [], False

    async def queue_arn(self):
        return "arn"

    def client(self):
        return self

    async def receive(self, *_, are_dead):
        found, self.letters = self.letters, []
        return found

    async def settle(self, api, arn, handles, visibility_seconds=None):
        if not self.is_closed:
            self.calls.append((api, handles))
        return {}

    async def close(self):
        self.is_closed = True


ARN = "arn:aws:kinesis:eu-west-1:123456789012:stream/orders"


def letters_of(queue, streams="orders", restores=False):
    given = {"flink.streams": streams, "flink.queue.name": "work", "aws.region": "eu-west-1"}
    letters = QueueLetters(rp.Properties(given), restores=restores)
    letters._queue = queue
    return letters


@pytest.mark.parametrize("streams", [ARN, f"orders={ARN}"])
async def test_a_letter_has_the_name_of_its_stream_as_a_record_of_the_job_has(streams):
    found = [chunk async for chunk in letters_of(OneLetter(), streams).chunks(is_replay=False)]

    assert [letter.shard.stream for (letter,) in found] == ["orders"]


class Fails:
    async def replay(self, letters):
        raise rp.SinkError("the target is away")


async def test_letters_of_a_replay_that_an_error_ends_are_visible_again_at_once():
    letters = letters_of(queue := OneLetter())

    with pytest.raises(rp.SinkError):
        async for _ in replay_letters(letters, Fails()):
            pass
    await letters.close()

    assert queue.calls == [("UpdateDeadLetterQueueRecordsVisibility", ["handle"])]


async def test_letters_are_visible_again_at_once_if_the_caller_of_a_replay_stops():
    letters = letters_of(queue := OneLetter())

    async with aclosing(replay_letters(letters, DropTarget())) as replaying:
        async for _ in replaying:
            break
    await letters.close()

    assert queue.calls[-1][0] == "UpdateDeadLetterQueueRecordsVisibility"


class Takes:
    """Takes every letter, except those with the payloads in `failing`."""

    def __init__(self, *failing):
        self.failing, self.taken = failing, []

    async def replay(self, letters):
        self.taken += [(each.record.data, each.record.partition_key) for each in letters]
        return {each.key: "no" for each in letters if each.record.data in self.failing}


async def replayed(queue, target, only=()):
    """The numbers of the letters that a replay has ended, and those of the letters that it has kept."""
    ended, kept = [], []
    async for done, failed in replay_letters(letters_of(queue), target, only):
        ended += [letter.number for letter in done]
        kept += [letter.number for letter, _ in failed]
    return ended, kept


PAIR = aggregate(("a", b"1"), ("b", b"2"))


async def test_an_aggregate_is_replayed_as_its_sub_records_as_the_job_reads_it():
    queue, target = OneLetter(PAIR), Takes()

    assert await replayed(queue, target) == (["id-0", "id-1"], [])
    assert target.taken == [(b"1", "a"), (b"2", "b")]
    assert queue.calls == [
        ("AcknowledgeDeadLetterQueueRecords", ["handle"]),
        ("UpdateDeadLetterQueueRecordsVisibility", []),
    ]


@pytest.mark.parametrize(("failing", "only"), [((b"2",), ()), ((), ("id-0",))])
async def test_an_aggregate_is_kept_until_all_of_its_sub_records_have_succeeded(failing, only):
    queue = OneLetter(PAIR)

    ended, kept = await replayed(queue, Takes(*failing), only)
    assert ended == []
    assert "id-0" in kept
    assert [api for api, handles in queue.calls if handles] == ["UpdateDeadLetterQueueRecordsVisibility"]


async def test_an_aggregate_without_sub_records_is_a_letter_that_can_be_dropped():
    assert await replayed(OneLetter(aggregate()), DropTarget()) == (["id"], [])


class AJobThatRuns(OneLetter):
    """Its queue gets each replayed letter as a record with another id, which is a dead letter before the next receive."""

    last_response_ms = 1_700_000_100_000

    def __init__(self):
        super().__init__()
        self.taken = []

    async def replay(self, letters):
        self.taken += [letter.record.sequence_number for letter in letters]
        assert len(self.taken) < 50, "the replay does not end"
        later = self.last_response_ms / 1000 + len(self.taken)
        self.letters += [ReceivedRecord(f"handle {later}", f"id {later}", b"x", later, 7, "k")]
        return {}


async def test_letters_that_a_running_job_makes_of_replayed_ones_are_left_to_the_next_replay():
    queue = AJobThatRuns()

    assert await replayed(queue, queue) == (["id"], [])
    assert queue.calls[-1] == ("UpdateDeadLetterQueueRecordsVisibility", ["handle 1700000101.0"])
