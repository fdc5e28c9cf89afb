"""Text from outside reaches neither a terminal nor a log as it is."""

import json
import logging

import pytest

from recordpublisher.cli.execution import print_error
from recordpublisher.cli.output import TextLines, aligned, escape_controls_in_json, json_text, printable, styled, table
from recordpublisher.cli.record_file import json_line

from fakes.batches import batch

HOSTILE = "\x1b]0;title\x07 \x9b31m \u202e \u2028 \x7f"


def controls_in(text):
    return [letter for letter in text if not letter.isprintable() and letter != "\n"]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[2J", "\\x1b[2J"),
        ("\x9b5n", "\\x9b5n"),
        ("a\u202eb", "a\\u202eb"),
        ("\udc80", "\\udc80"),
        ("tab\tline\nüß漢", "tab\tline\nüß漢"),
    ],
)
def test_control_characters_are_escapes_and_other_text_is_as_it_is(text, shown):
    assert printable(text) == shown


def test_a_cell_of_a_table_is_one_line_and_keeps_only_our_colours(monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    row = table(("A", "B"), [(HOSTILE + "\nFAKE", styled("ALARM", "red"))]).split("\n")[1]

    assert controls_in(row.replace("\x1b[31mALARM\x1b[0m", "ALARM")) == []
    assert "\\nFAKE" in row
    assert controls_in(aligned([(HOSTILE,)])[0]) == []


def test_json_has_the_same_meaning_without_control_characters():
    line = json_text({"max_bytes": HOSTILE})

    assert controls_in(line) == []
    assert json.loads(line) == {"maxBytes": HOSTILE}
    assert escape_controls_in_json('"ü漢😀"'.encode()).decode() == '"ü漢😀"'


def test_a_record_is_printed_without_control_characters():
    (record,) = batch(HOSTILE.encode())
    line = json_line(record).decode()

    assert controls_in(line) == []
    assert json.loads(line)["data"] == HOSTILE


def test_an_error_is_one_line_without_control_characters(capsys):
    print_error(f"worker {HOSTILE}\nERROR forged")

    (line,) = capsys.readouterr().err.splitlines()
    assert controls_in(line) == []


def test_a_log_entry_is_one_line_with_its_time_and_cannot_forge_another():
    record = logging.LogRecord(
        "recordpublisher.run", logging.INFO, "f", 1, "key %s", (f"{HOSTILE}\nINFO forged",), None
    )
    record.created = 1_700_000_000.5
    line = TextLines().format(record)

    assert line.startswith("2023-11-14T22:13:20.500+00:00 INFO recordpublisher.run: key ")
    assert controls_in(line) == []
    assert "\n" not in line


def test_a_traceback_is_indented_so_that_it_looks_like_no_line():
    try:
        int(f"{HOSTILE}\nINFO forged")
    except ValueError as error:
        record = logging.LogRecord("l", logging.INFO, "f", 1, "m", (), (ValueError, error, error.__traceback__))
    lines = TextLines().format(record).split("\n")

    assert all(line.startswith("  ") for line in lines[1:])
    assert controls_in("".join(lines)) == []
