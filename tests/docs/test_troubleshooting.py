"""Every error has a heading on the page of troubleshooting, to which a search for its name leads."""

import re

import recordpublisher as rp
from recordpublisher.publishers.kinesis.error_mapping import HINTS

from processes.command_line import ROOT

HEADINGS = re.findall(r"^### (\w+)$", (ROOT / "docs/reference/troubleshooting.md").read_text(), re.MULTILINE)


def test_every_error_class_has_a_heading():
    assert sorted(name for name in HEADINGS if name in rp.__all__) == sorted(
        name for name in rp.__all__ if name.endswith("Error")
    )


def test_every_code_with_a_remedy_has_a_heading():
    assert set(HINTS) <= set(HEADINGS)


def test_no_heading_is_there_twice():
    assert sorted(set(HEADINGS)) == sorted(HEADINGS)
