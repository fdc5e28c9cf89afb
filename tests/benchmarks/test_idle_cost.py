"""What silence costs: shards that have nothing to say, as a share of one core (`make bench`)."""

import subprocess
import sys

import pytest
from benchmarks.processes import ENVIRONMENT, said_by

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(300)]


@pytest.mark.parametrize(("publisher", "shards", "goal"), [("EFO", 1_000, 0.05), ("POLLING", 100, 0.40)])
def test_idle_cost(publisher, shards, goal, growth):
    command = [sys.executable, "-m", "recordpublisher", "local", "--port", "0", "--stream", f"silent:{shards}"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=ENVIRONMENT
    ) as local:
        try:
            url = local.stdout.readline().split()[-1]
            share, reads = said_by("idle_client.py", url, publisher, 20).split()
        finally:
            local.terminate()
    verdict = "met" if float(share) <= goal else "missed"
    growth.append(
        f"{publisher}, {shards} silent shards: {float(share):.1%} of a core, {reads} answers; goal {goal:.0%}: {verdict}"
    )
