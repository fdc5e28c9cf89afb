"""The programs that replace those of other clients read what is in the stream."""

import pytest

from recordpublisher.local import serve_in_thread

from processes.command_line import ROOT, sdk_environment
from processes.documentation_page import run_page

pytestmark = pytest.mark.slow
PROGRAMS = {"boto3": 1, "kcl": 2, "flink-connector": 1, "async-kinesis": 1}


@pytest.fixture(autouse=True)
def _stream(monkeypatch):
    with serve_in_thread(streams={"orders": 1}) as served:
        served.stream("orders").put(*({"order": number} for number in range(3)), key="customer-1")
        for name, value in sdk_environment(served).items():
            monkeypatch.setenv(name, value)
        yield


@pytest.mark.parametrize("client", PROGRAMS)
def test_the_new_program_reads_the_stream(client, tmp_path):
    assert run_page(ROOT / f"docs/migrate/from-{client}.md", tmp_path, {}) == PROGRAMS[client]
