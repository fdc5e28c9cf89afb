"""Runs a script and writes where its CPU went, as folded stacks: FILE SCRIPT [ARGUMENTS]. A line is `outer;inner;innermost samples`.

The kernel's profiling timer ticks with the CPU time of the process, so that waiting costs no samples. Only what runs inside the event
loop is kept: imports and the end of the process say nothing about a record.
"""

import runpy
import signal
import sys
from collections import Counter
from pathlib import Path

SECONDS = 0.001
"""The kernel rounds up to its own tick (4 ms with most configurations)."""
LOOP = "run_forever"
SAMPLES: Counter[tuple[str, ...]] = Counter()


def take_sample(_, frame):
    stack = []
    while frame is not None:
        if frame.f_code.co_name == LOOP:
            SAMPLES[tuple(reversed(stack))] += 1
            return
        stack.append(f"{short(frame.f_code.co_filename)}:{frame.f_code.co_qualname}")
        frame = frame.f_back


def short(file):
    """`publishers/kinesis/client.py` of the library, `aiohttp/client.py` of a package, `asyncio/events.py` of Python."""
    parts = Path(file).parts
    for root in ("recordpublisher", "site-packages", "python3.11", f"python3.{sys.version_info.minor}"):
        if root in parts:
            return "/".join(parts[len(parts) - parts[::-1].index(root) :])
    return "/".join(parts[-2:])


def main(file, script, *arguments):
    sys.argv = [script, *arguments]
    signal.signal(signal.SIGPROF, take_sample)
    signal.setitimer(signal.ITIMER_PROF, SECONDS, SECONDS)
    try:
        runpy.run_path(script, run_name="__main__")
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        lines = [f"{';'.join(stack)} {count}\n" for stack, count in sorted(SAMPLES.items())]
        Path(file).write_text("".join(lines))


main(*sys.argv[1:])
