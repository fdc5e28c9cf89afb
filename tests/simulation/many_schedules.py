"""Runs many schedules, and names the first seeds that fail."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

SHOWN = 10
PROGRESS = 5_000


def failures_of(run: Callable[[int], object], seeds: Iterable[int], variable: str) -> list[str]:
    """The first few failing seeds, each with its error, as the setting that runs it again.

    Nothing is logged: the logs of all schedules would fill the memory. A line tells of each failure, and of each 5,000
    schedules.
    """
    failures: list[str] = []
    logging.disable(logging.CRITICAL)
    try:
        for count, seed in enumerate(seeds, 1):
            try:
                run(seed)
            except Exception as error:  # any error is reported with its seed
                failures.append(f"{variable}={seed}   # {type(error).__name__} {error}")
                print(failures[-1], flush=True)
                if len(failures) == SHOWN:
                    break
            if count % PROGRESS == 0:
                print(f"{count:,} schedules, {len(failures)} failures", flush=True)
    finally:
        logging.disable(logging.NOTSET)
    return failures
