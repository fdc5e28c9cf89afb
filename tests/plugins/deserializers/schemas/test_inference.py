"""What columns JSON shows: each case is decided here."""

import pytest

from recordpublisher.plugins.deserializers.schemas.ddl import parse_columns
from recordpublisher.plugins.deserializers.schemas.inference import (
    columns_text,
    grown,
    merged,
    shape_of,
    with_names,
    without_column,
)


def columns_of(*values, there=None):
    seen = {}
    for value in values:
        seen = merged(seen, shape_of(value))
    there = there or {}
    return columns_text(grown(there, with_names(seen, there)))


@pytest.mark.parametrize(
    ("values", "columns"),
    [
        ([True], "a BOOLEAN"),
        ([1], "a BIGINT"),
        ([2**63 - 1, -(2**63)], "a BIGINT"),
        ([1, 2**63], "a DECIMAL(38, 0)"),
        ([1.5], "a DOUBLE"),
        ([1, 1.5], "a DOUBLE"),
        ([1.5, 2**70, 1], "a DOUBLE"),
        (["2026-11-26T06:00:00Z"], "a STRING"),
        ([None], ""),
        ([None, 1, None], "a BIGINT"),
        ([[]], ""),
        ([[None]], ""),
        ([[], [1], [None]], "a ARRAY<BIGINT>"),
        ([[1, 1.5]], "a ARRAY<DOUBLE>"),
        ([[{"b": 1}, {"c": "x"}]], "a ARRAY<STRUCT<b: BIGINT, c: STRING>>"),
        ([{}], ""),
        ([{"b": None}], ""),
        ([{"b": 1}, {"c": {"d": True}}], "a STRUCT<b: BIGINT, c: STRUCT<d: BOOLEAN>>"),
        ([1, "x"], "a BIGINT"),
        (["x", 1], "a STRING"),
        ([True, 1], "a BOOLEAN"),
        ([{"b": 1}, 7], "a STRUCT<b: BIGINT>"),
        ([[], 1], "a BIGINT"),
        ([{}, [None], {"b": None}, [1]], "a ARRAY<BIGINT>"),
        ([[[], 1.5]], "a ARRAY<DOUBLE>"),
    ],
)
def test_values_of_one_field_have_one_column(values, columns):
    assert columns_of(*({"a": value} for value in values)) == columns


def test_no_type_of_a_table_is_changed_and_what_it_lacks_is_added_inside_objects_and_lists_too():
    there = {"a": "INT", "b": {"c": "DATE"}, "d": [{"e": "STRING"}], "m": ("STRING", "INT")}
    seen = {"a": 1.5, "b": {"c": 1, "x": True}, "d": [{"y": 1}], "m": {"k": "text"}, "n": 1}

    assert columns_of(seen, there=there) == (
        "a INT, b STRUCT<c: DATE, x: BOOLEAN>, d ARRAY<STRUCT<e: STRING, y: BIGINT>>, m MAP<STRING, INT>, n BIGINT"
    )


def test_names_that_differ_in_case_only_or_are_none_get_no_column():
    seen = {"Id": 1, "id": 2, "": 3, "a\0": 4, "b`": 5, "c d": 6, "e": {"F": 1, "f": 2}, "g": [{"": 1, "h": 1}]}

    assert columns_of(seen) == "Id BIGINT, `c d` BIGINT, e STRUCT<F: BIGINT>, g ARRAY<STRUCT<h: BIGINT>>"
    assert columns_of({"ID": 1}, there={"id": "BIGINT"}) == "id BIGINT"


def test_values_without_a_column_are_found_by_their_path():
    there = {"a": "BIGINT", "b": {"c": "DATE"}, "d": [{"e": "STRING"}], "m": ("STRING", "INT")}

    assert list(without_column(shape_of({"a": "x", "b": {"c": 1}, "d": [], "m": {"k": 1}, "n": None}), there)) == []
    assert list(without_column(shape_of({"b": {"x": 1}, "d": [{"y": 1}], "n": {"z": 1}}), there)) == [
        "b.x",
        "d[].y",
        "n.z",
    ]


def test_objects_in_a_map_of_a_table_grow_together():
    there = {"m": ("STRING", {"a": "INT"})}
    seen = {"m": {"K": {"a": 1, "b": "x"}, "k": {"a": 1}}}

    assert list(without_column(shape_of(seen), there)) == ["m.K.b"]
    assert columns_of(seen, there=there) == "m MAP<STRING, STRUCT<a: INT, b: STRING>>"


def test_what_is_printed_can_be_pinned():
    text = columns_of({"a b": [{"c": {"d": 2**70}}], "e": 1.5})

    assert text == "`a b` ARRAY<STRUCT<c: STRUCT<d: DECIMAL(38, 0)>>>, e DOUBLE"
    parse_columns(text)


def test_a_value_that_is_nested_too_deep_is_refused():
    value = 1
    for _ in range(40):
        value = {"a": value}

    with pytest.raises(ValueError, match="nested more than 32 deep"):
        shape_of(value)
