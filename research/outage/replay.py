"""Replays the outage with real processes: `python -m outage.replay --rule flink --pictures docs/images` (see `make outage-pictures`).

One subtask of a job is stopped for longer than idle interval and tracker timeout, and runs again. By Flink's old rule one of its shards
stays unread for ever, and the alarms name it. By our rule it is read; then the job is started again with one shard days behind.
Start reading in scenario.py. A rule takes about half a minute for each part, and the exit code is 1 when a check fails.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from recordpublisher.demo.runner import CheckResult

from .catch_up import run_catch_up
from .results.checks import check_catch_up, check_flink_rule, check_our_rule
from .results.event_log import EventLog
from .subtask import FLINK
from .suspension import run_suspension

TRACKERS = {"ours": "TCP", "flink": FLINK}
"""The rules, and the tracker of each."""


@dataclass(frozen=True, slots=True)
class ReplayPart:
    """One part that was run. `unit` of event time in its picture: minutes or days."""

    name: str
    title: str
    unit: str
    checks: list[CheckResult]
    log: EventLog


def main() -> int:
    """Run a rule, print its checks and draw its pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rule", choices=TRACKERS, required=True)
    parser.add_argument("--pictures", type=Path, help="draw a PNG of each part into this folder; needs matplotlib")
    arguments = parser.parse_args()
    parts = run_replay(arguments.rule, lambda line: print(line, file=sys.stderr))
    for part in parts:
        print(part.title)
        for check in part.checks:
            print(f"  {'ok  ' if check.passed else 'FAIL'}  {check.name}: {check.found}")
        if arguments.pictures is not None:
            from .results.plot import draw

            path = arguments.pictures / f"{part.name}.png"
            draw(part.log, part.title, part.unit, path)
            print(f"picture: {path}")
    return 0 if all(check.passed for part in parts for check in part.checks) else 1


def run_replay(rule: str, log_line: Callable[[str], None]) -> list[ReplayPart]:
    """Run the outage by a rule; by ours, the catch-up too. Raises: ReplayFailedError."""
    with tempfile.TemporaryDirectory(prefix="recordpublisher-outage-") as made:
        folder = Path(made)
        title = "The outage by our rule" if rule == "ours" else "The outage by Flink's old rule (before FLINK-29099)"
        log_line(title)
        suspension = run_suspension(TRACKERS[rule], folder / rule, log_line)
        if rule != "ours":
            checks = check_flink_rule(suspension)
            return [ReplayPart("outage-flink-rule", title, "minutes", checks, suspension.log)]
        parts = [ReplayPart("outage-our-rule", title, "minutes", check_our_rule(suspension), suspension.log)]
        title = "Catching up: one shard is three days behind"
        log_line(title)
        catch_up = run_catch_up(folder / "catch-up", log_line)
        return [*parts, ReplayPart("outage-catch-up", title, "days", check_catch_up(catch_up), catch_up.log)]


if __name__ == "__main__":
    sys.exit(main())
