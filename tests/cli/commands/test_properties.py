"""`recordpublisher properties`."""

import json
import os
import pty
import subprocess
import sys

import pytest

from recordpublisher import Property

from processes.command_line import ROOT, json_results, process_environment

WORDS = ((), ("MaxRecordCount", "--json"), ("--json",), ("nonsense",), ("lookahead",))


@pytest.fixture(scope="module")
def results():
    """Exit code, stdout and stderr by the command's arguments. One process runs them all: it imports what every plugin declares."""
    commands = [["properties", *words] for words in WORDS]
    return dict(zip(WORDS, json_results("commands_in_one_process", commands), strict=True))


def lines(results, *words):
    return [json.loads(line) for line in results[words][1].splitlines()]


def test_the_page_shows_the_connectors_default_where_it_differs():
    page = (ROOT / "docs/reference/properties.md").read_text()

    assert "| `flink.shard.subscribetoshard.maxretries` | 5 (connector: 10) |" in page
    assert "| `flink.stream.registerstreamconsumer.backoff.base` | 200 ms (connector: 500) |" in page


def test_the_list_shows_defaults_and_valid_values(results):
    _, listed, _ = results[()]

    assert "  flink.shard.getrecords.maxrecordcount\n" in listed
    assert "default: 10000 records; valid: a whole number from 1 to 10000 records" in listed
    assert "flink.stream.efo.consumerarn.<name>" in listed


def test_a_word_chooses_properties_by_key_or_meaning(results):
    listed = lines(results, "MaxRecordCount", "--json")

    assert "flink.shard.getrecords.maxrecordcount" in [one["key"] for one in listed]
    assert all("maxrecordcount" in json.dumps(one).lower() for one in listed)


def test_json_has_a_line_for_each_property(results):
    listed = lines(results, "--json")

    assert len(listed) > 100
    assert {one["key"]: one for one in listed}["flink.shard.subscribetoshard.maxretries"] == {
        "key": "flink.shard.subscribetoshard.maxretries",
        "aliases": [],
        "group": "Retries",
        "meaning": "Failures of SubscribeToShard in a row, without progress between them, before the job fails.",
        "default": 5,
        "unit": "",
        "valid": "a whole number of at least 0",
        "secret": False,
        "connectorDefault": "10",
    }


def test_a_secret_and_an_older_key_are_marked(results):
    _, listed, _ = results[()]

    assert (
        "Secret key for BASIC.\n      default: not set; valid: a text that is not empty; a secret, which is never shown\n"
        in listed
    )
    assert "; also spelt aws.producer.aggregationMaxCount\n" in listed


def test_a_word_of_no_property_is_an_error(results):
    message = "recordpublisher: no property has 'nonsense' in its key, group or meaning\n"

    assert results["nonsense",] == [1, "", message]


@pytest.mark.slow
@pytest.mark.parametrize(("no_colour", "is_styled"), [("", True), ("1", False)])
def test_a_terminal_gets_styles_unless_no_color_is_set(no_colour, is_styled):
    ours, theirs = pty.openpty()
    show = [sys.executable, "-m", "recordpublisher", "properties", "lookahead"]
    with subprocess.Popen(show, stdout=theirs, env=process_environment(NO_COLOR=no_colour)) as process:
        os.close(theirs)
        shown = read_all(ours)

    assert process.returncode == 0
    assert b"flink.watermark.lookahead.millis" in shown
    assert (b"\x1b[1mflink.watermark" in shown) is is_styled


def read_all(terminal):
    """What a process writes to a terminal until it ends."""
    shown = b""
    try:
        while block := os.read(terminal, 65_536):
            shown += block
    except OSError:  # Linux: the last process has closed it
        pass
    os.close(terminal)
    return shown


def test_a_pipe_gets_no_styles(results):
    code, listed, _ = results["lookahead",]

    assert (code, "\x1b" in listed) == (0, False)


def test_a_default_without_letters_is_in_quotes():
    from recordpublisher.cli.commands.properties import _paragraph

    shown = _paragraph(Property("my.separator", str, ";", "a text", "What stands between two fields."))

    assert "default: ';'; valid: a text" in str(shown)
