"""`recordpublisher properties`."""

from processes.command_line import ROOT, command


def test_the_reference_page_is_current():
    written = command("properties", "--markdown").stdout

    assert (ROOT / "docs/reference/properties.md").read_text() == written, (
        "run `recordpublisher properties --markdown > docs/reference/properties.md`"
    )


def test_the_page_shows_the_connectors_default_where_it_differs():
    page = (ROOT / "docs/reference/properties.md").read_text()

    assert "| `flink.shard.subscribetoshard.maxretries` | 5 (connector: 10) |" in page
    assert "| `flink.stream.registerstreamconsumer.backoff.base` | 200 ms (connector: 500) |" in page


def test_the_list_shows_defaults_and_valid_values():
    listed = command("properties").stdout

    assert "  flink.shard.getrecords.maxrecordcount\n" in listed
    assert "default: 10000 records; valid: a whole number from 1 to 10000" in listed
    assert "flink.stream.efo.consumerarn.<name>" in listed
