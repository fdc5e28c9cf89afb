"""S9: shards go to subtasks by the middle of their hash range, the same in every process."""

import subprocess
import sys

from hypothesis import given
from hypothesis import strategies as st

from recordpublisher.fetcher.shards.assignment import UniformAssigner, uniform
from recordpublisher.publishers.shards import MAX_HASH_KEY, HashRange, Shard

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
    owners = [uniform(shard, parallelism) for shard in even(shards)]
    shares = [owners.count(subtask) for subtask in range(parallelism)]

    assert max(shares) - min(shares) <= 1


def test_streams_begin_at_different_subtasks():
    assert len({uniform(even(1, f"stream-{number}")[0], 8) for number in range(50)}) > 4


def test_another_process_returns_the_same():  # never Python's hash
    code = "import sys; sys.path[:0] = {!r}; from recordpublisher.fetcher.shards.assignment import uniform; "
    code += "from recordpublisher.publishers.shards import Shard; print([uniform(Shard(f's{{n}}', 'a'), 7) for n in range(20)])"
    told = subprocess.run([sys.executable, "-c", code.format(sys.path)], capture_output=True, text=True, check=True)

    assert told.stdout.strip() == str([uniform(Shard(f"s{n}", "a"), 7) for n in range(20)])


def test_the_registered_assigner_is_the_same():
    assert UniformAssigner()(even(5)[3], 4) == uniform(even(5)[3], 4)
