"""Whatever a server sends is an answer or an error of this library (R4, F3): no foreign exception, no wait for ever, little memory.

ANSWERS=50000 make hostile        so many of each kind, FIRST=... for another seed
"""

import asyncio
import os
import tracemalloc
from collections import Counter
from random import Random

import pytest

from recordpublisher.publishers.errors import RecordPublisherError
from recordpublisher.publishers.kinesis.error_mapping import MAX_RESPONSE_BYTES
from recordpublisher.testing.virtual_time import VirtualLoop

from .answers import hostile_body, hostile_events, hostile_http2_response, hostile_response
from .in_memory_calls import get_records, get_shard_iterator, list_shards, subscribe, subscribe_over_http2

QUICK, MANY = 150, "50000"
PIECES = [1, 2, 50, 300]
STATUSES = [200, 200, 200, 301, 400, 500]
KINDS = {
    "GetRecords": lambda draw: get_records(hostile_response(draw, "GetRecords"), draw.choice(PIECES)),
    "GetShardIterator": lambda draw: get_shard_iterator(
        hostile_response(draw, "GetShardIterator"), draw.choice(PIECES)
    ),
    "ListShards": lambda draw: list_shards(hostile_body(draw, "ListShards"), draw.choice(STATUSES)),
    "SubscribeToShard": lambda draw: subscribe(hostile_events(draw), draw.choice(PIECES)),
    "SubscribeToShard-HTTP2": lambda draw: subscribe_over_http2(hostile_http2_response(draw), draw.choice(PIECES)),
}


def outcome_of(loop, calling):
    """Run a call on virtual time, where waiting for nothing is an error. Raises what is no error of the library."""
    raised = []
    loop.set_exception_handler(lambda _, context: raised.append(context))
    try:
        loop.run_until_complete(calling)
        outcome = "answer"
    except RecordPublisherError as error:
        outcome = type(error).__name__
    loop.run_until_complete(asyncio.sleep(1))
    assert raised == []
    return outcome


def outcomes_of(kind, first, count):
    """How many of the answers with these seeds had which outcome."""
    outcomes, loop = Counter(), VirtualLoop()
    try:
        for seed in range(first, first + count):
            outcomes[outcome_of(loop, KINDS[kind](Random(f"{kind}/{seed}")))] += 1
    except Exception as error:
        error.add_note(f"{kind}, FIRST={seed} ANSWERS=1")
        raise
    finally:
        loop.close()
    return outcomes


@pytest.mark.parametrize("kind", KINDS)
def test_r4_each_hostile_answer_is_read_or_an_error_of_the_library(kind):
    outcomes = outcomes_of(kind, 0, QUICK)

    assert {"answer", "TransientError"} <= set(outcomes)


@pytest.mark.parametrize("kind", KINDS)
def test_p6_no_hostile_answer_takes_more_memory_than_a_response_may(kind):
    """A length that is only announced takes none."""
    tracemalloc.start()  # makes everything ten times slower
    try:
        outcomes_of(kind, 0, QUICK // 15)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak < MAX_RESPONSE_BYTES


@pytest.mark.hostile
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", KINDS)
def test_r4_many_hostile_answers(kind):
    first, count = int(os.environ.get("FIRST", "1000")), int(os.environ.get("ANSWERS", MANY))
    print(f"{kind}: {outcomes_of(kind, first, count)}")
