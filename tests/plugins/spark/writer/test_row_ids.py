"""Ids of rows: the same when a row is put again in any order, and different for any two rows."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as some

from recordpublisher.plugins.spark.rows_to_records import (
    BATCH,
    EXECUTION,
    QUERY,
    ROOT_EXECUTION,
    IdField,
    RowIds,
    id_prefix_of,
)
from recordpublisher.publishers.errors import SinkError

ROWS = some.lists(some.tuples(some.sampled_from(["a", "b"]), some.sampled_from([None, "k"]), some.binary(max_size=2)))


def ids_of(rows, scope="query/1/0"):
    ids = RowIds(scope)
    return [ids.id_of(stream, key, None, data) for stream, key, data in rows]


@given(ROWS, some.randoms())
def test_an_attempt_in_another_order_gives_the_same_ids_to_the_same_rows(rows, chance):
    again = list(rows)
    chance.shuffle(again)
    made, made_again = zip(ids_of(rows), rows, strict=True), zip(ids_of(again), again, strict=True)
    assert sorted(made, key=repr) == sorted(made_again, key=repr)


@given(ROWS, ROWS)
def test_dropping_repeats_of_two_attempts_loses_no_row_even_when_they_differ(first, second):
    """The rows that a consumer keeps include every row of the finished attempt, equal rows as often as they occur."""
    kept = dict(zip(ids_of(first) + ids_of(second), first + second, strict=True))
    for row in set(second):
        assert sum(one == row for one in kept.values()) >= second.count(row)


@given(ROWS)
def test_any_two_rows_have_different_ids(rows):
    made = ids_of(rows)
    assert len(set(made)) == len(made)


def test_equal_rows_of_two_batches_tasks_or_queries_are_not_repeats():
    row = [("s", "k", b"same")]
    scopes = ["query/1/0", "query/2/0", "query/1/1", "other/1/0"]
    assert len({ids_of(row, scope)[0] for scope in scopes}) == len(scopes)


def test_the_scope_is_the_batch_of_the_query_and_outside_a_query_the_run():
    assert id_prefix_of(in_batch(0), "run", 3) == "q/7/0/3"
    assert id_prefix_of({}.get, "run", 3) == "run/3"


def in_batch(write, root=40):
    """The local properties of a task of this write of a batch."""
    return {QUERY: "q", BATCH: "7", EXECUTION: str(root + write), ROOT_EXECUTION: str(root)}.get


def test_two_writes_of_one_batch_have_different_scopes_and_the_same_when_the_batch_runs_again():
    first, again = (
        [id_prefix_of(in_batch(write, root), run, 0) for write in (1, 2)] for run, root in [("a", 40), ("b", 7)]
    )
    assert first == again
    assert len(set(first)) == 2


def test_two_writes_whose_numbers_are_not_known_have_different_scopes():
    assert len({id_prefix_of({QUERY: "q", BATCH: "7"}.get, run, 0) for run in ("a", "b")}) == 2


@pytest.mark.parametrize("data", [b"{}", b" { } ", b'{"a": 1}', b'\n{"b": {"id2": [1]}}\n', '{"ключ": "id"}'.encode()])
def test_the_id_becomes_a_field_of_the_object(data):
    marked = json.loads(IdField("id").insert_id(data, "0f"))
    assert marked == {"id": "0f", **json.loads(data)}


@pytest.mark.parametrize("data", [b"", b"[1]", b"plain", b"{", b'"{}"'])
def test_data_that_is_not_a_json_object_is_an_error(data):
    with pytest.raises(SinkError, match=r"idField adds 'id' to a JSON object, but the data of a row is"):
        IdField("id").insert_id(data, "0f")


@pytest.mark.parametrize("data", [b'{"id": 1}', b'{"a": {}, "id": null}'])
def test_an_existing_field_is_an_error(data):
    with pytest.raises(SinkError, match="has that field"):
        IdField("id").insert_id(data, "0f")


@pytest.mark.parametrize("data", [b'{"id": "\xff"}', b'{"id":' + b"[" * 100_000 + b"}"])
def test_what_cannot_be_parsed_and_may_have_the_field_is_an_error(data):
    with pytest.raises(SinkError, match="has that field"):
        IdField("id").insert_id(data, "0f")


def test_ids_stay_the_same_from_version_to_version():
    """A row that is put again by a newer one is the same row."""
    ids = RowIds("query/1/0")

    assert ids.id_of("out", "key-1", None, b'{"n":1}') == "b7b213b27599389408e91ff3c8d0fd6e"
    assert ids.id_of("out", "key-1", None, b'{"n":1}') == "81bd0b23c4af3df09f6c6a8112df090d"
