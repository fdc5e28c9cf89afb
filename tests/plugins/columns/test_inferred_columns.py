"""Any objects of JSON are rows, or rejected with a reason: nothing else is raised, and no value is lost without one."""

import random

import msgspec
import pyarrow as pa
import pytest

from recordpublisher.plugins.columns.inferred_columns import InferredColumns, shape_of_type
from recordpublisher.plugins.deserializers.schemas.inference import InferredJson

from fakes.batches import batch
from random_inputs import inputs

NAMES = ["a", "b", "A", "c d", "é", "", "stream", "x.y", "class", "\0", "\ud800"]


def value(chosen, level=0):
    kind = chosen.randrange(10 if level < 4 else 7)
    if kind < 7:
        return [None, True, 1, 2**63, -(2**200), 1.5, "text"][kind]
    if kind == 7:
        return [value(chosen, level + 1) for _ in range(chosen.randrange(3))]
    return document(chosen, level + 1)


def document(chosen, level=0):
    return {chosen.choice(NAMES): value(chosen, level) for _ in range(chosen.randrange(4))}


def without_nothing(kept):
    """A value without nulls and what is empty, for which a column has null or nothing."""
    if isinstance(kept, dict):
        return {name: item for name, each in kept.items() if (item := without_nothing(each)) is not None} or None
    if isinstance(kept, list):
        items = [without_nothing(item) for item in kept]
        return None if set(map(type, items)) <= {type(None)} else items
    return kept


@pytest.mark.random
@pytest.mark.parametrize("seed", range(inputs(1_500, quick=50)))
def test_objects_are_rows_with_all_their_values_or_are_rejected(seed):
    chosen, there = random.Random(seed), pa.schema([])
    columns = InferredColumns(there)
    for _ in range(4):
        documents = [document(chosen) for _ in range(chosen.randrange(1, 5))]
        payloads = [msgspec.json.encode(each) for each in documents if is_text(each)] or [b"{}"]
        given = batch(*payloads).with_columns(event_times=[0 for _ in payloads])
        records = given.with_columns(values=InferredJson().values(given))
        if (seen := columns.unknown([records])) is not None:
            before = columns.shape
            columns = columns.grown_by(seen, there)
            there = columns.schema
            assert {name: columns.shape[name] for name in before if not isinstance(before[name], (dict, list))} == {
                name: shape for name, shape in before.items() if not isinstance(shape, (dict, list))
            }
        rejected = []
        rows = [row for part in columns.rows([records], rejected) for row in part.to_pylist()]

        assert len(rows) + len(rejected) == len(payloads)
        bad = {one.data[0] for one, _ in rejected}
        good = [msgspec.json.decode(payload) for payload in payloads if payload not in bad]
        shown = [{name: item for name, item in row.items() if name in columns.shape} for row in rows]
        assert list(map(without_nothing, shown)) == list(map(without_nothing, good))
        assert InferredColumns(there).shape == columns.shape


def is_text(each):
    try:
        msgspec.json.encode(each)
    except UnicodeEncodeError:
        return False
    return True


def test_the_types_of_tables_that_are_not_written_from_json_have_no_shape():
    assert shape_of_type(pa.duration("us")) is None
    assert shape_of_type(pa.struct([("a", pa.timestamp("us"))])) is None
    assert shape_of_type(pa.map_(pa.string(), pa.int32())) == ("STRING", "INT")
