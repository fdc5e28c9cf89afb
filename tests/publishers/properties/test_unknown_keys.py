"""Keys of the dead-letter sink that have no effect."""

import warnings

import pytest

from recordpublisher import Properties, UnknownPropertyWarning


@pytest.mark.parametrize(
    ("key", "nearest"), [("jsonl.pat", "jsonl.path"), ("sqll.uri", "sql.uri"), ("JSONL.PAHT", "jsonl.path")]
)
def test_a_setting_of_the_dead_letter_sink_is_checked_as_one_of_a_sink(key, nearest):
    with pytest.warns(
        UnknownPropertyWarning,
        match=rf"'flink\.deadletter\.{key}' is ignored; did you mean 'flink\.deadletter\.{nearest}'",
    ):
        Properties({f"flink.deadletter.{key}": "x"}).check()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Properties({"flink.deadletter.sink": "jsonl", f"flink.deadletter.{nearest}": "x"}).check()
