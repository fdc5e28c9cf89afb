"""The tree of shards that `describe` prints."""

import re

from recordpublisher.cli.shard_tree import shard_tree
from recordpublisher.publishers.shards import MAX_HASH_KEY, HashRange, Shard

HALF = (MAX_HASH_KEY + 1) // 2
LOW, HIGH = HashRange(0, HALF - 1), HashRange(HALF, MAX_HASH_KEY)


def shard(number, *parents, keys=None, closed=False):
    return Shard(
        "orders",
        f"shardId-{number:012}",
        tuple(f"shardId-{parent:012}" for parent in parents),
        keys or HashRange(),
        closed,
    )


def outline(shards):
    return [re.split("  (?:open|closed)", line)[0].replace("shardId-00000000000", "") for line in shard_tree(shards)]


def test_a_line_has_the_state_the_hash_range_and_its_share():
    assert shard_tree([shard(0, keys=LOW, closed=True)]) == [f"shardId-000000000000  closed  0 to {HALF - 1} (50.0%)"]


def test_children_stand_below_their_parent():
    lines = outline([shard(0, closed=True), shard(1, 0, closed=True), shard(2, 0), shard(3, 1), shard(4, 1)])

    assert lines == ["0", "├─ 1", "│  ├─ 3", "│  └─ 4", "└─ 2"]


def test_a_merged_shard_stands_below_its_second_parent_and_names_both():
    lines = shard_tree([shard(0, keys=LOW, closed=True), shard(1, keys=HIGH, closed=True), shard(2, 0, 1)])

    assert [line[:3] for line in lines] == ["sha", "sha", "└─ "]
    assert lines[2].endswith("(100.0%)  merged from shardId-000000000000 and shardId-000000000001")


def test_a_shard_whose_parents_have_expired_is_a_root():
    assert outline([shard(7, 3), shard(8, 3)]) == ["7", "8"]


def test_a_thousand_generations_are_no_problem():
    shards = [shard(0), *(shard(number, number - 1) for number in range(1, 2_000))]

    assert len(shard_tree(shards)) == 2_000
