"""Positions from a file, as `positions show --json` prints them."""

import json

import pytest

from recordpublisher.fetcher.shards.shard_state import ShardState
from recordpublisher.plugins.positions.file_import import positions_from_states, read_positions
from recordpublisher.publishers.errors import ConfigurationError, StateError
from recordpublisher.publishers.positions import SequenceNumber, StartingPosition
from recordpublisher.publishers.shards import Shard

SHARDS = ["orders/shardId-000000000000", "orders/shardId-000000000001"]
STATES = {
    SHARDS[0]: ShardState(StartingPosition.trim_horizon(), SequenceNumber("17", 2), watermark=5),
    SHARDS[1]: ShardState(StartingPosition.trim_horizon(), ended=True),
}


def test_what_was_shown_is_read(tmp_path):
    lines = [json.dumps({"shard": shard, **state.to_json()}) for shard, state in STATES.items()]
    (tmp_path / "p.jsonl").write_text("\n".join([*lines, ""]))
    assert read_positions(tmp_path / "p.jsonl") == STATES


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{", "line 2 .*positions show --json"),
        ("[]", "line 2 .*positions show --json"),
        ('{"start": "TRIM_HORIZON"}', "line 2 .*`shard`"),
        ('{"shard": 7, "start": "TRIM_HORIZON"}', "line 2"),
        ('{"shard": "orders", "start": "TRIM_HORIZON"}', "line 2 .*'orders': it must be stream/shard-id"),
        ('{"shard": "orders/a", "start": "SOON"}', "line 2 .*SOON"),
        (
            '{"shard": "orders/a", "start": "TRIM_HORIZON", "ended": "false"}',
            "line 2 .*Expected `bool`, got `str` - at `\\$.ended`",
        ),
        ('{"shard": "orders/a", "start": "TRIM_HORIZON", "watermark": "5"}', "line 2 .*watermark`"),
        ('{"shard": "orders/a", "start": "TRIM_HORIZON", "watermark": true}', "line 2 .*watermark`"),
        ('{"shard": "orders/a", "start": "TRIM_HORIZON", "parents": "a"}', "line 2 .*parents`"),
        (
            '{"shard": "orders/a", "start": "TRIM_HORIZON", "position": "%s"}' % ("9" * 5_000),
            "line 2 .*position`",
        ),
        ('{"shard": "orders/a", "start": "TRIM_HORIZON", "position": %s}' % ("9" * 5_000), "line 2 .*"),
        (
            '{"shard": "orders/a", "start": "TRIM_HORIZON", "position": "1", "subSequenceNumber": -1}',
            "line 2 .*subSequenceNumber`",
        ),
        (f'{{"shard": "{SHARDS[0]}", "start": "TRIM_HORIZON"}}', f"line 2 .*{SHARDS[0]} a second time"),
    ],
)
def test_a_line_that_is_no_position_is_named(tmp_path, line, words):
    first = json.dumps({"shard": SHARDS[0], **STATES[SHARDS[0]].to_json()})
    (tmp_path / "p.jsonl").write_text(f"{first}\n{line}\n")
    with pytest.raises(StateError, match=words):
        read_positions(tmp_path / "p.jsonl")


def test_a_file_that_cannot_be_read_is_a_configuration_error(tmp_path):
    with pytest.raises(ConfigurationError, match=r"--from.*No such file"):
        read_positions(tmp_path / "none")


def test_a_shard_that_is_gone_is_noted():
    planned = positions_from_states(STATES, [], ["orders"])
    assert [each.note for each in planned] == [
        "the stream no longer lists it: its unread records are lost",
        "",
    ]


@pytest.mark.parametrize(
    ("streams", "words"),
    [(["clicks"], "positions of orders, and the job reads clicks"), (["orders", "clicks"], "no position of clicks")],
)
def test_the_file_must_be_of_the_jobs_streams(streams, words):
    listed = [Shard("orders", shard.partition("/")[2]) for shard in SHARDS]
    with pytest.raises(StateError, match=words):
        positions_from_states(STATES, listed, streams)
