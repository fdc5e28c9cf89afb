"""Mutation testing of the soak: each recovery rule is removed in turn, and some seed must fail.

`python -m soak.mutation_testing [--seeds 300] [RULE ...]`, with `PYTHONPATH=research:tests` (minutes).
Exit code 1 when no seed fails without a rule.
"""

from __future__ import annotations

import argparse
import logging
import sys

from .in_memory import soak
from .recovery_rules import RULES, without


def seeds_until_failure(rule: str, limit: int) -> tuple[int, str] | None:
    """How many seeds it takes until one fails without the rule, and how; None when none of `limit` does."""
    with without(rule):
        for number in range(limit):
            try:
                soak(number)
            except BaseException as error:
                if isinstance(error, KeyboardInterrupt):
                    raise
                return number + 1, f"{type(error).__name__}: {str(error)[:110]}"
    return None


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--seeds", type=int, default=300)
    arguments.add_argument("rules", nargs="*")
    given = arguments.parse_args()
    logging.disable(logging.CRITICAL)
    undetected = 0
    for rule in given.rules or RULES:
        found = seeds_until_failure(rule, given.seeds)
        undetected += found is None
        number, how = found or (f"not in {given.seeds}", "")
        print(f"| {rule} | {number} | {how} |", flush=True)
    return 1 if undetected else 0


if __name__ == "__main__":
    sys.exit(main())
