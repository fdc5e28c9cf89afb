"""Replays the outage with real processes: `python -m outage.replay --pictures docs/images` (see `make outage-pictures`).

One worker of a group is stopped for longer than its lease, and runs again; one of its shards gets its first records then. Each record is
written once; then the job is started again with one shard days behind. Start reading in scenario.py. Each part takes about half a minute,
and the exit code is 1 when a check fails.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from recordpublisher.demo.runner import CheckResult

from .catch_up import SHARDS, run_catch_up
from .results.checks import check_catch_up, check_our_rule
from .results.event_log import EventLog
from .suspension import run_suspension


@dataclass(frozen=True, slots=True)
class ReplayPart:
    """One part that was run. `unit` of event time in its picture: minutes or days."""

    name: str
    title: str
    unit: str
    checks: list[CheckResult]
    log: EventLog


def main() -> int:
    """Run both parts, print their checks and draw their pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pictures", type=Path, help="draw a PNG of each part into this folder; needs matplotlib")
    parser.add_argument("--alone", action="store_true", help="only the catch-up, by one process that runs alone")
    arguments = parser.parse_args()
    run = run_catch_up_alone if arguments.alone else run_replay
    parts = run(lambda line: print(line, file=sys.stderr))
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


def run_replay(log_line: Callable[[str], None]) -> list[ReplayPart]:
    """Run the outage, and then the catch-up. Raises: ReplayFailedError."""
    with tempfile.TemporaryDirectory(prefix="recordpublisher-outage-") as made:
        folder = Path(made)
        title = "The outage, replayed"
        log_line(title)
        suspension = run_suspension(folder / "outage", log_line)
        parts = [ReplayPart("outage-our-rule", title, "minutes", check_our_rule(suspension), suspension.log)]
        return [*parts, _catch_up(folder, log_line)]


def run_catch_up_alone(log_line: Callable[[str], None]) -> list[ReplayPart]:
    """Run the catch-up with one process. The outage itself needs others, which a stopped one must not hold. Raises: ReplayFailedError."""
    with tempfile.TemporaryDirectory(prefix="recordpublisher-outage-") as made:
        return [_catch_up(Path(made), log_line, 1)]


def _catch_up(folder: Path, log_line: Callable[[str], None], workers: int = SHARDS) -> ReplayPart:
    title = "Catching up: one shard is three days behind"
    log_line(title)
    catch_up = run_catch_up(folder / "catch-up", log_line, workers)
    return ReplayPart("outage-catch-up", title, "days", check_catch_up(catch_up), catch_up.log)


if __name__ == "__main__":
    sys.exit(main())
