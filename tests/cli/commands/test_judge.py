"""`recordpublisher judge`: what a consumer made of a schedule, from a file or stdin."""

import pytest

from processes.command_line import command

SCHEDULE = "seconds = 0\nkeys = 2\nstep = []"
ALL = "".join(f"shard {number} 1700000000.000 1700000002.500\n" for number in range(4))


@pytest.fixture
def schedule(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text(SCHEDULE)
    return str(file)


def test_all_records_in_order_are_well(schedule):
    judged = command("judge", "--schedule", schedule, stdin=ALL)
    assert (judged.returncode, judged.stderr) == (0, "")
    assert judged.stdout == "4 records: 0 lost, 0 repeated, 0 out of order; the slowest came after 2.5 s\n"


def test_a_file_with_lost_and_repeated_records_is_judged(schedule, tmp_path):
    (tmp_path / "lines").write_text("0 1700000000.000 1700000001\n\x1b[31m\n" * 2)
    judged = command("judge", str(tmp_path / "lines"), "--schedule", schedule)
    assert judged.returncode == 3
    assert judged.stdout == "4 records: 3 lost, 1 repeated, 0 out of order; the slowest came after 1.0 s\n"
    assert "\x1b" not in judged.stderr


def test_a_missing_schedule_is_one_line(tmp_path):
    judged = command("judge", "--schedule", str(tmp_path / "none"), stdin="")
    assert (judged.returncode, judged.stderr.count("\n")) == (2, 1)
