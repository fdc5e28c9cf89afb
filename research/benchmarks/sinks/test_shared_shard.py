"""What the Kinesis sink gets of one shard beside boto3 producers and other sinks, as percent of a fair share (`make bench`)."""

import subprocess
import sys
from contextlib import ExitStack

import pytest

from benchmarks.figures.table import Row
from benchmarks.processes import ENVIRONMENT, HERE, limited_endpoint

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(300)]

RATE, WARM_UP, SECONDS = 1_000, 18, 12
BACK_OFF_SECONDS = 60
"""Measured beside producers that back off: their pauses are up to 5 s long."""
SECTION = "shared shard"
OURS = "clients/sinks/shared_shard_client.py"


def start(stack, script, *arguments):
    """A client process; it is killed when the block ends, if it still runs."""
    command = [sys.executable, str(HERE / script), *map(str, arguments)]
    process = stack.enter_context(
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=ENVIRONMENT)
    )
    stack.callback(process.kill)
    return process


def put_beside(kind="", others=0, ordering="NONE", keys=500, percent_refused=0, seconds=SECONDS):
    """Our records a second, and percent refused. `kind` of the others: fixed or exponential (boto3), sink, or nothing."""
    with limited_endpoint(percent_refused) as url, ExitStack() as stack:
        for number in range(others):
            if kind == "sink":
                start(stack, OURS, url, ordering, seconds, keys, WARM_UP)
            else:
                start(stack, "clients/sinks/greedy_client.py", url, kind, WARM_UP + seconds + 10, number)
        printed, _ = start(stack, OURS, url, ordering, seconds, keys, WARM_UP).communicate(timeout=200)
    return map(float, printed.split())


def add_rows(table, name, taken, fair, refused, at_least, most_refused=None):
    table.append(Row(f"{name}: of a fair share", 100 * taken / fair, at_least_ours=at_least, section=SECTION, unit="%"))
    table.append(Row(f"{name}: refused", refused, at_most=most_refused, section=SECTION, unit="%"))


@pytest.mark.parametrize("ordering", ["NONE", "PER_KEY"])
@pytest.mark.parametrize("others", [1, 3, 8])
def test_beside_boto3_producers_that_do_not_back_off(others, ordering, table):
    taken, refused = put_beside("fixed", others, ordering)
    add_rows(table, f"{ordering}, beside {others} that do not back off", taken, RATE / (others + 1), refused, 60)


@pytest.mark.parametrize(
    ("others", "kind", "name"),
    [(number, "sink", "other sinks") for number in (1, 3, 7)]
    + [(number, "exponential", "boto3, exponential backoff") for number in (1, 3)],
)
def test_beside_producers_that_back_off(others, kind, name, table):
    """80 to 110 % is the goal."""
    taken, refused = put_beside(kind, others, seconds=BACK_OFF_SECONDS)
    add_rows(table, f"NONE, beside {others}, {name}", taken, RATE / (others + 1), refused, 80)


@pytest.mark.parametrize(("ordering", "at_least"), [("NONE", 85), ("PER_KEY", 60)])
def test_alone_with_five_percent_refused_at_random(ordering, at_least, table):
    taken, refused = put_beside(ordering=ordering, keys=1_000, percent_refused=5)
    add_rows(table, f"{ordering}, alone, 5 % refused at random", taken, RATE, refused, at_least)


@pytest.mark.parametrize("ordering", ["NONE", "PER_KEY"])
def test_alone(ordering, table):
    taken, refused = put_beside(ordering=ordering, keys=1_000)
    add_rows(table, f"{ordering}, alone", taken, RATE, refused, None, 10)
