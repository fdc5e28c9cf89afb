"""Schedules are read and played, and what a client has read is judged."""

import pytest

from recordpublisher import ConfigurationError
from recordpublisher.local import LocalKinesis, ManualClock
from recordpublisher.local.schedules.schedule import (
    BUILT_IN_SCHEDULES,
    Player,
    Score,
    SeenRecord,
    load_schedule,
    score,
    seen_record_in,
)

TEXT = """
seconds = 10
records_a_second = 5
[[step]]
at = 2
faults = "throttle"
seconds = 3
[[step]]
at = 4
reshard = "split"
client = "restart"
[[step]]
at = 6
reshard = "merge"
"""

PUT = {0: 0.0, 8: 1.0, 16: 9.0}
OTHERS = [SeenRecord(number, 0.0, 0.0) for number in range(17) if number % 8]


@pytest.fixture
def schedule(tmp_path):
    (tmp_path / "mine.toml").write_text(TEXT)
    return load_schedule(str(tmp_path / "mine.toml"))


def test_everything_happens_at_its_time(schedule):
    told = []
    endpoint = LocalKinesis(clock=ManualClock())
    player = Player(endpoint, schedule, told.append)
    stream = endpoint.stream("orders")

    seen = []
    for seconds in (0, 2, 4, 6, 10):
        is_going_on = player.advance(seconds)
        records = sum(len(shard.log) for shard in stream.shards.values())
        seen.append((records, len(stream.open_shards), len(told), is_going_on))
    assert seen == [(16, 2, 0, True), (26, 2, 1, True), (36, 3, 3, True), (46, 2, 5, True), (66, 2, 5, False)]
    assert told == [
        "2 s: faults: throttle",
        "4 s: split",
        "4 s: kill the client and start it again",
        "5 s: faults: none",
        "6 s: merge",
    ]
    assert schedule.record_count == 66


def test_a_merge_of_one_shard_is_left_out_and_told(tmp_path):
    (tmp_path / "one.toml").write_text('shards = 1\n[[step]]\nat = 1\nreshard = "merge"\nclient = "restart"\n')
    told = []
    Player(LocalKinesis(), load_schedule(str(tmp_path / "one.toml")), told.append).advance(1)
    assert told == ["1 s: no merge, because the stream has only one shard", "1 s: kill the client and start it again"]


@pytest.mark.parametrize("name", BUILT_IN_SCHEDULES)
def test_a_ready_schedule_can_be_played_to_its_end(name):
    schedule = load_schedule(name)
    endpoint = LocalKinesis()
    assert not Player(endpoint, schedule, lambda what: None).advance(1_000)
    assert sum(len(shard.log) for shard in endpoint.stream("orders").shards.values()) == schedule.record_count


@pytest.mark.parametrize(
    "text",
    [
        "step = 5",
        "[[step]]",
        "[[step]]\nat = -1",
        '[[step]]\nat = 1\nreshard = "twist"',
        '[[step]]\nat = 1\nfaults = "thrott"',
        "[[step]]\nat = 1\nunknown = 1",
        "keys = 0\nstep = []",
        "not toml",
        "\x00",
    ],
)
def test_a_schedule_that_cannot_be_is_a_configuration_error(tmp_path, text):
    (tmp_path / "mine.toml").write_text(text)
    with pytest.raises(ConfigurationError, match="schedule"):
        load_schedule(str(tmp_path / "mine.toml"))


def test_a_missing_file_is_an_error_with_the_ready_ones():
    with pytest.raises(ConfigurationError, match="everything, outage, reshards"):
        load_schedule("nowhere.toml")


@pytest.mark.parametrize(
    ("printed", "expected"),
    [
        ([(1.0, 0), (2.0, 8), (12.0, 16)], Score(17, 0, 0, 0, 1.0, 2.0)),
        ([(1.0, 0), (4.0, 8)], Score(17, 1, 0, 0, 3.0, None)),
        ([(1.0, 0), (2.0, 8), (12.0, 8), (13.0, 16)], Score(17, 0, 1, 0, 1.0, 3.0)),
        ([(1.0, 0), (2.0, 16), (3.0, 8)], Score(17, 0, 0, 1, 2.0, None)),
    ],
    ids=["all", "lost", "repeated", "out of order"],
)
def test_lines_are_judged_by_what_was_put(printed, expected):
    lines = [SeenRecord(number, PUT[number], at) for at, number in printed]
    assert score(17, OTHERS + lines, keys=8, began=-1.0, killed=10.0) == expected


def test_records_of_other_keys_have_no_order():
    assert score(2, [SeenRecord(1, 0.0, 1.0), SeenRecord(0, 0.0, 2.0)], keys=8).out_of_order == 0


@pytest.mark.parametrize(
    ("line", "seen"),
    [
        ("17 1700000000.250\n", SeenRecord(17, 1_700_000_000.25, 5.0)),
        ("shardId-000000000001 17 1700000000.250", SeenRecord(17, 1_700_000_000.25, 5.0)),
        ("17 1700000000.250 1700000001.5", SeenRecord(17, 1_700_000_000.25, 1_700_000_001.5)),
        ("a b 17 1700000000.250", None),
        ("17", None),
        ("", None),
    ],
)
def test_a_line_is_a_number_and_when_it_was_put(line, seen):
    assert seen_record_in(line, now=5.0) == seen


def test_faults_of_two_steps_last_as_long_as_each_says(tmp_path):
    step = '[[step]]\nat = {}\nfaults = "{}"\nseconds = {}\n'
    steps = step.format(1, "lost=0.1", 4) + step.format(3, "reset", 6) + step.format(9, "page", 2)
    (tmp_path / "mine.toml").write_text(steps)
    endpoint, told = LocalKinesis(), []
    player = Player(endpoint, load_schedule(str(tmp_path / "mine.toml")), told.append)
    for seconds in range(12):
        player.advance(seconds)
    assert told == [
        "1 s: faults: lost=0.1",
        "3 s: faults: lost=0.1, reset",
        "5 s: faults: reset",
        "9 s: faults: none",
        "9 s: faults: page",
        "11 s: faults: none",
    ]


def test_faults_that_last_no_time_are_refused(tmp_path):
    (tmp_path / "mine.toml").write_text('[[step]]\nat = 1\nfaults = "lost"\n')
    with pytest.raises(ConfigurationError, match="the faults at 1 s have no `seconds`, so none would happen"):
        load_schedule(str(tmp_path / "mine.toml"))
