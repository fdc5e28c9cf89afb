"""Keys of the dead-letter sink that have no effect."""

import pytest

from recordpublisher import ConfigurationError, Properties


@pytest.mark.parametrize(
    ("key", "nearest"), [("jsonl.pat", "jsonl.path"), ("sqll.uri", "sql.uri"), ("JSONL.PAHT", "jsonl.path")]
)
def test_a_setting_of_the_dead_letter_sink_is_checked_as_one_of_a_sink(key, nearest, caplog):
    with pytest.raises(
        ConfigurationError, match=rf"'flink\.deadletter\.{key}' .*; did you mean 'flink\.deadletter\.{nearest}'"
    ):
        Properties({f"flink.deadletter.{key}": "x"}).check()
    Properties({"flink.deadletter.sink": "jsonl", f"flink.deadletter.{nearest}": "x"}).check()
    assert caplog.messages == []
