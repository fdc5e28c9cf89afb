"""The tutorials are played as written: their files are made, their commands run, their output compared."""

import pytest
from command_line import ROOT
from walkthrough import play

from recordpublisher.plugins.local import serve_in_thread

TUTORIAL = ROOT / "docs/tutorial"


@pytest.fixture
def served():
    with serve_in_thread(streams={"orders": 2}) as thread:
        yield thread


def test_first_stream(served, tmp_path):
    assert play(TUTORIAL / "first-stream.md", tmp_path, {"http://127.0.0.1:4567": served.url}) == 7


def test_first_sink(served, tmp_path):
    for number in range(10):
        served.call(served.endpoint.stream("orders").put, b'{"order": %d}' % number, str(number))

    assert play(TUTORIAL / "first-sink.md", tmp_path, {"http://127.0.0.1:4567": served.url}) == 4
