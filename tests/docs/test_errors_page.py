"""The class, the code and the text of an error that a user sees lead to the page that says what to do."""

import re
import runpy

import pytest

import recordpublisher as rp
from recordpublisher.fetcher.checkpoints.snapshot_format import merge_snapshots
from recordpublisher.publishers.kinesis.error_mapping import HINTS
from recordpublisher.publishers.properties.job_properties import JOB_WORKERS
from recordpublisher.publishers.properties.properties import Properties

from processes.command_line import ROOT

PAGE = (ROOT / "docs/reference/errors.md").read_text()
ANCHORS = re.findall(r'<a id="([^"]+)">', PAGE)
GENERATOR = runpy.run_path(str(ROOT / "docs/errors_page.py"))


def test_every_error_class_has_one_anchor():
    root = {"recordpublishererror"}

    assert sorted(ANCHORS) == sorted({name.lower() for name in rp.__all__ if name.endswith("Error")} | root)


@pytest.mark.parametrize("error", [rp.DataLossError("gone"), rp.StreamNotFoundError("orders")])
def test_an_error_names_its_part_of_the_page(error):
    page, _, anchor = error.help_page.partition("#")

    assert (ROOT / f"docs/{page}.md").read_text() == PAGE
    assert anchor in ANCHORS


def test_an_error_of_a_plugin_names_the_part_of_the_class_that_it_is():
    class BrokerError(rp.SinkError):
        """Of a plugin."""

    assert BrokerError("away").help_page == "reference/errors#sinkerror"


def test_every_code_with_a_remedy_is_in_the_table():
    codes = PAGE.split("## Codes of the service")[1].split("\n## ")[0]

    assert [code for code in HINTS if f"`{code}`" not in codes] == []


def headings_with(message: str) -> list[str]:
    """The headings below which the page has the text of a message; `…` stands for anything."""
    return [
        section.splitlines()[0]
        for section in PAGE.split("\n## ")[1:]
        for text in re.findall(r"^- `(.*)`", section, re.MULTILINE)
        if re.fullmatch(".*".join(map(re.escape, text.split("…"))), message)
    ]


def unreadable_snapshot() -> None:
    merge_snapshots([{"version": 99, "shards": {}}])


def wrong_value() -> None:
    Properties({JOB_WORKERS.key: "SOMETIMES"}).value(JOB_WORKERS)


def missing_stream() -> None:
    raise rp.StreamNotFoundError("orders", ["clicks"])


def denied_call() -> None:
    raise rp.FatalKinesisError("GetRecords", "AccessDeniedException", "not authorized")


def bad_record() -> None:
    raise rp.DeserializationError("orders", "shardId-0", "49", "it is not a JSON")


@pytest.mark.parametrize(
    ("fail", "heading"),
    [
        (unreadable_snapshot, "The stored state"),
        (wrong_value, "A setting is wrong or missing"),
        (missing_stream, "A stream does not exist"),
        (denied_call, "A call failed"),
        (bad_record, "A record cannot be deserialized"),
    ],
)
def test_a_message_is_found_by_its_text(fail, heading):
    with pytest.raises(rp.RecordPublisherError) as raised:
        fail()

    assert heading in headings_with(str(raised.value)), raised.value


def test_every_class_of_errors_that_the_code_raises_has_a_subject():
    of_subjects = {error for subject in GENERATOR["SUBJECTS"] for error in subject.errors}

    assert of_subjects == GENERATOR["OWN"]


def test_every_subject_has_messages():
    assert set(GENERATOR["messages"]().values()) == set(GENERATOR["SUBJECTS"])
