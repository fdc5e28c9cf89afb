"""`recordpublisher tail --shard` against the embedded endpoint."""

import json

import pytest

from recordpublisher.local import serve_in_thread
from recordpublisher.local.stream import split

from processes.command_line import several_commands

FIRST, SECOND, LEFT, RIGHT = (f"shardId-{number:012}" for number in range(4))
LOW, HIGH = 0, 2**127
EFO = "-p flink.stream.recordpublisher=EFO -p flink.stream.efo.consumername=tail"


@pytest.fixture(scope="module")
def done():
    """What each command printed; the first shard was split after its fourth record, and each shard has records."""
    with serve_in_thread(streams={"flights": 2, "returns": 1}) as served:
        numbers = served.call(fill, served.endpoint.stream("flights"))
        commands = {
            "one": f"tail flights --shard {FIRST} --no-follow",
            "two": f"tail flights --shard {SECOND} --shard {RIGHT} --until 2100-01-01T00:00:00Z",
            "sequence": f"tail flights --shard {FIRST} --from {numbers[2]} --no-follow",
            "fan-out": f"tail flights --shard {FIRST} --from {numbers[1]} {EFO}",
            "ended": f"tail flights --shard {FIRST} --from TRIM_HORIZON",
            "limit": f"tail flights --shard {RIGHT} --from TRIM_HORIZON -n 1",
            "grep": f"tail flights --shard {FIRST} --no-follow --grep [02]",
            "unknown": "tail flights --shard shardId-7",
            "two streams": f"tail flights returns --shard {FIRST}",
            "no shard": f"tail flights --from {numbers[0]}",
        }
        results = several_commands(served, *map(str.split, commands.values()))
    return dict(zip(commands, results, strict=True))


def fill(stream):
    """Put records into every shard; the sequence numbers of those of the first."""
    numbers = [stream.put(b"%d" % number, "key", LOW) for number in range(4)]
    stream.put(b"second", "key", HIGH)
    split(stream, stream.shard(FIRST), 2**126)
    stream.put(b"left", "key", LOW)
    for data in (b"right", b"more"):
        stream.put(data, "key", 2**126)
    return numbers


def printed(result):
    assert (result.returncode, result.stderr) == (0, "")
    return [json.loads(line)["data"] for line in result.stdout.splitlines()]


def test_only_the_records_of_the_shard_are_printed(done):
    assert printed(done["one"]) == ["0", "1", "2", "3"]


def test_several_shards_also_a_child_whose_parent_is_not_read(done):
    assert sorted(printed(done["two"])) == ["more", "right", "second"]


def test_a_sequence_number_is_where_the_reading_starts(done):
    assert printed(done["sequence"]) == ["2", "3"]


def test_by_fan_out(done):
    assert printed(done["fan-out"]) == ["1", "2", "3"]


def test_a_closed_shard_ends_the_command_and_its_children_are_not_read(done):
    assert printed(done["ended"]) == ["0", "1", "2", "3"]


def test_limit_and_patterns_are_kept(done):
    assert printed(done["limit"]) == ["right"]
    assert printed(done["grep"]) == ["0", "2"]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (
            "unknown",
            f"'--shard' is 'shardId-7'. Valid: a shard of the stream: {FIRST}, {SECOND}, {LEFT}, {RIGHT}",
        ),
        ("two streams", f"'--shard' is '{FIRST}'. Valid: with one stream"),
        ("no shard", "a sequence number is of one shard. Valid: with one --shard"),
    ],
)
def test_wrong_options_are_one_line(done, name, words):
    assert (done[name].returncode, done[name].stdout) == (2, "")
    assert done[name].stderr.count("\n") == 1
    assert words in done[name].stderr
