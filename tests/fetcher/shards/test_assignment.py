"""S9: shards go to subtasks by the middle of their hash range, the same in every process. A2: which subtask monitors which shard."""

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordpublisher.fetcher.shards.assignment import (
    missing_reader_reason,
    monitor_of,
    monitored_shards,
    uniform,
    uniform_assigner,
)
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.shards import MAX_HASH_KEY, HashRange, Shard

from fakes.shard_entries import shard

SHARDS = [shard(str(number)) for number in range(4)]
RANGES = st.tuples(st.integers(0, MAX_HASH_KEY), st.integers(0, MAX_HASH_KEY)).map(sorted)


def even(count: int, stream: str = "s") -> list[Shard]:
    size = (MAX_HASH_KEY + 1) // count
    return [Shard(stream, str(n), hash_range=HashRange(n * size, (n + 1) * size - 1)) for n in range(count)]


@given(RANGES, st.text(max_size=10), st.integers(1, 300))
def test_every_shard_has_exactly_one_owner_at_any_parallelism(keys, stream, parallelism):
    owner = uniform(Shard(stream, "a", hash_range=HashRange(*keys)), parallelism)

    assert 0 <= owner < parallelism


@given(st.integers(1, 40), st.integers(1, 40))
def test_even_shards_are_shared_evenly(shards, parallelism):
    owners = [uniform(each, parallelism) for each in even(shards)]
    shares = [owners.count(subtask) for subtask in range(parallelism)]

    assert max(shares) - min(shares) <= 1


def test_streams_begin_at_different_subtasks():
    assert len({uniform(even(1, f"stream-{number}")[0], 8) for number in range(50)}) > 4


def test_another_process_assigns_the_same():  # never Python's hash
    code = "import sys; sys.path[:0] = {!r}; from recordpublisher.fetcher.shards.assignment import uniform; "
    code += "from recordpublisher.publishers.shards import Shard; print([uniform(Shard(f's{{n}}', 'a'), 7) for n in range(20)])"
    printed = subprocess.run([sys.executable, "-c", code.format(sys.path)], capture_output=True, text=True, check=True)

    assert printed.stdout.strip() == str([uniform(Shard(f"s{n}", "a"), 7) for n in range(20)])


def test_the_registered_assigner_assigns_the_same():
    assert uniform_assigner(Properties())(even(5)[3], 4) == uniform(even(5)[3], 4)


def monitored_by(subtask, parallelism, own=()):
    return sorted(monitored_shards(SHARDS, own, lambda each, _: int(each.shard_id), subtask, parallelism))


def test_subtask_0_monitors_the_shards_of_all_others_and_subtask_1_those_of_subtask_0():
    assert monitored_by(0, 4, own={"s/0"}) == ["s/1", "s/2", "s/3"]
    assert monitored_by(1, 4, own={"s/1"}) == ["s/0"]
    assert monitored_by(2, 4, own={"s/2"}) == []


@pytest.mark.parametrize("parallelism", range(1, 6))
def test_every_shard_is_monitored_by_one_existing_subtask(parallelism):
    assert all(0 <= monitor_of(owner, parallelism) < parallelism for owner in range(-2, 9))


def test_a_single_subtask_monitors_all_shards_that_it_does_not_own():
    assert monitored_by(0, 1, own={"s/0"}) == ["s/1", "s/2", "s/3"]


def test_a_shard_without_an_owner_is_judged_with_and_without_a_store():
    for has_store in (True, False):
        assert missing_reader_reason(7, 4, (), (), has_store) == "no subtask owns it: it was assigned to subtask 7 of 4"
        assert missing_reader_reason(2, 4, [2], (), has_store) == "its owner, subtask 2, has not joined"


def test_a_shard_with_an_owner_is_judged_by_what_the_owner_stores():
    assert missing_reader_reason(2, 4, (), (), True) == "its owner, subtask 2, stores no progress"
    assert missing_reader_reason(2, 4, (), (2,), True) == "its owner, subtask 2, has timed out"
    assert missing_reader_reason(2, 4, (), (2,), False) is None
