"""The six short programs are as short as they claim, and each does what its page says."""

import re

import psycopg
import pytest

from recordpublisher.local import serve_in_thread

from processes.command_line import ROOT, sdk_environment
from processes.documentation_page import run_page
from servers.postgresql import serve_postgresql

pytestmark = pytest.mark.slow
PAGE = ROOT / "docs/how-to/short-programs.md"
_, *SECTIONS = re.split(r"^(?=## )", PAGE.read_text(), flags=re.MULTILINE)
MOST_LINES = {
    "Print a stream": 3,
    "JSON into PostgreSQL, exactly once": 10,
    "Two streams by enhanced fan-out": 6,
    "A function for each record": 8,
    "Three streams, a handler each": 23,
    "A unit test": 7,
}
DATABASE = "postgresql://loader@db.example/shop"


def title(section):
    return section.splitlines()[0].removeprefix("## ")


@pytest.fixture
def _streams(monkeypatch):
    with serve_in_thread(streams={"orders": 1, "clicks": 1, "refunds": 1}) as served:
        served.stream("orders").put(*({"order": number} for number in range(3)), key="customer-1")
        served.stream("clicks").put({"click": 0})
        served.stream("refunds").put({"refund": 7})
        for name, value in sdk_environment(served).items():
            monkeypatch.setenv(name, value)
        yield


@pytest.fixture
def database(request):
    if DATABASE not in request.getfixturevalue("section"):
        yield DATABASE
        return
    with serve_postgresql() as uri:
        yield uri


def test_there_are_six():
    assert [title(section) for section in SECTIONS] == list(MOST_LINES)


@pytest.mark.parametrize("section", SECTIONS, ids=title)
def test_the_program_is_short(section):
    (program,) = re.findall(r"^```python\n(?:# \w+\.py\n)?(.*?)^```$", section, re.MULTILINE | re.DOTALL)

    assert len([line for line in program.splitlines() if line]) <= MOST_LINES[title(section)]


@pytest.mark.usefixtures("_streams")
@pytest.mark.parametrize("section", SECTIONS, ids=title)
def test_the_program_does_what_the_page_says(section, database, tmp_path):
    page = tmp_path / "section.md"
    page.write_text(section)

    assert run_page(page, tmp_path, {DATABASE: database}) > 0
    if DATABASE in section:
        with psycopg.connect(database) as connection:
            rows = connection.execute('select "order", partition_key from orders order by "order"').fetchall()
        assert rows == [(number, "customer-1") for number in range(3)]
