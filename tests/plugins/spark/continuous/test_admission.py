"""Which steps a batch takes."""

from __future__ import annotations

from recordpublisher.plugins.spark.continuous.admission import Limits, admitted
from recordpublisher.plugins.spark.continuous.backlog import Waiting
from recordpublisher.plugins.spark.continuous.history import Step
from recordpublisher.plugins.spark.continuous.manifest import Kind, Manifest, ShardRows

NONE = Limits()
FIRST, LAST = ("1", -1), ("9", -1)


def step(number: int, rows: int, shard: str = "s/a", parents: tuple[str, ...] = ()) -> Step:
    shards = {shard: ShardRows(rows, FIRST, LAST, parents)} if rows else {}
    file = "files/x" if rows else None
    return Step(number, Manifest(Kind.ROWS, "token", 0, file=file, rows=rows, payload=10 * rows, shards=shards))


def waiting(*lanes: list[Step]) -> Waiting:
    return Waiting(1, tuple(0 for _ in lanes), tuple(map(tuple, lanes)), is_over=False)


def taken(there: Waiting, limits: Limits = NONE, turn: int = 0, known: Waiting | None = None) -> tuple[int, ...]:
    return admitted(there, known or there, limits, turn)


def test_without_limits_a_batch_takes_everything():
    assert taken(waiting([step(1, 5), step(2, 5)], [step(1, 5)], [])) == (2, 1, 0)


def test_whole_files_up_to_the_limit_and_one_at_least():
    there = waiting([step(1, 50), step(2, 50)], [step(1, 50)])
    assert taken(there, Limits(rows=100)) == (1, 1)
    assert taken(there, Limits(rows=99)) == (1, 0)
    assert taken(there, Limits(rows=1)) == (1, 0)
    assert taken(there, Limits(payload=1000)) == (1, 1)


def test_another_lane_begins_in_every_batch_so_that_none_starves():
    there = waiting([step(1, 50), step(2, 50)], [step(1, 50)], [step(1, 50)])
    assert [taken(there, Limits(rows=1), turn) for turn in range(3)] == [(1, 0, 0), (0, 1, 0), (0, 0, 1)]


def test_steps_without_rows_cost_nothing():
    assert taken(waiting([step(1, 0), step(2, 50), step(3, 0)], [step(1, 0)]), Limits(rows=50)) == (3, 1)


def test_s2_a_childs_first_rows_wait_for_the_batch_after_its_parents_last():
    parent, child = step(1, 5, "s/parent"), step(1, 5, "s/child", parents=("s/parent",))
    assert taken(waiting([parent], [child, step(2, 5, "s/child")])) == (1, 0)
    assert taken(waiting([], [child])) == (0, 1)


def test_s2_a_later_look_knows_parents_rows_that_the_first_missed():
    child = step(1, 5, "s/child", parents=("s/parent",))
    first, later = waiting([], [child]), waiting([step(1, 5, "s/parent")], [child])
    assert taken(first, known=later) == (0, 0)


def test_s2_one_lane_has_parent_and_child_in_order():
    child = step(2, 5, "s/child", parents=("s/parent",))
    assert taken(waiting([step(1, 5, "s/parent"), child], [])) == (2, 0)
