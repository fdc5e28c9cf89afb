"""P6: a thousand shards in one process stay within the byte budget, as the operating system counts it."""

import json
import subprocess
import sys

import pytest

from processes.command_line import ROOT, process_environment

BUDGET = 64 << 20
EVENT = 500 * 560
"""An event of a subscription, as held: its size is the service's choice."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("publisher", "record_bytes", "bound"),
    [("POLLING", 200, BUDGET), ("POLLING", 10_000, BUDGET), ("EFO", 200, max(BUDGET, 1_000 * EVENT))],
)
def test_a_thousand_shards_hold_no_more_than_the_budget(publisher, record_bytes, bound):
    """Where the sink takes nothing. Each shard may always read one batch, which polling makes small enough and fan-out cannot."""
    arguments = [
        sys.executable,
        str(ROOT / "tests/processes/full_shards.py"),
        publisher,
        "1000",
        str(BUDGET),
        str(record_bytes),
    ]
    environment = process_environment()
    environment["PYTHONPATH"] = f"{ROOT / 'src'}:{ROOT / 'tests'}"
    done = subprocess.run(arguments, env=environment, capture_output=True, text=True, timeout=110, check=True)
    found = json.loads(done.stdout)
    print(
        f"{publisher}, records of {record_bytes} B, bound {bound >> 20} MiB: "
        + ", ".join(f"{k} {v:,}" for k, v in found.items())
    )

    assert found["reading"] == 1_000
    assert found["queued"] <= bound * 1.02
    assert found["held"] <= bound * 1.25
