"""Many soak runs: `python -m soak.sweep --seeds 500 [--first 0]` with `PYTHONPATH=research:tests`; exit code 1 when one failed."""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable

from recordpublisher.local.faults import FaultKind

from .in_memory import soak


def sweep(
    seeds: Iterable[int], run: Callable[[int], Counter[FaultKind]]
) -> tuple[Counter[FaultKind], dict[int, Exception]]:
    """Run every seed; returns the applied faults by kind, and the errors by seed."""
    counts: Counter[FaultKind] = Counter()
    failed: dict[int, Exception] = {}
    for seed in seeds:
        try:
            counts += run(seed)
        except Exception as error:
            failed[seed] = error
    return counts, failed


def table(counts: Counter[FaultKind]) -> str:
    """The counts as lines, one for each kind."""
    return "\n".join(f"{counts[kind]:7,}  {kind:<12} {kind.description}" for kind in FaultKind)


def repeat_commands(module: str, failed: dict[int, Exception]) -> list[str]:
    """The commands that run failed seeds again, each with its error."""
    return [
        f"PYTHONPATH=research:tests python -m {module} {seed}   # {type(e).__name__}: {str(e)[:300]}"
        for seed, e in failed.items()
    ]


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--seeds", type=int, default=500)
    arguments.add_argument("--first", type=int, default=0)
    given = arguments.parse_args()
    logging.disable(logging.ERROR)
    started = time.monotonic()
    counts, failed = sweep(range(given.first, given.first + given.seeds), soak)
    print(table(counts))
    print(
        f"{given.seeds} seeds, {sum(counts.values()):,} faults, {len(failed)} failed, {time.monotonic() - started:.0f} s"
    )
    print(*repeat_commands("soak.in_memory", failed), sep="\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
