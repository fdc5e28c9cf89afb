"""Draws the effect of the Kinesis sink's queue limit, like the pictures of FLINK-9374: a copy that reads ten times as fast as its
target accepts, with and without the limit.

`python docs/draw_kinesis_sink.py` takes five minutes and writes docs/images/kinesis-sink-back-pressure.png.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "tests"))

from slow_copy.processes import copy, server  # noqa: E402 - the tests' processes

PICTURE = HERE / "images" / "kinesis-sink-back-pressure.png"
RECORDS, SECONDS = 300_000, 20
NO_LIMIT = 10**9


def main() -> None:
    runs = {}
    for name, limit in (("without a limit", NO_LIMIT), ("with the default limit", 0)):
        with server(RECORDS) as url:
            samples, end = copy(url, "POLLING", SECONDS, limit)
            runs[name] = samples
            sys.stdout.write(f"{name}: {end}\n")
    draw(runs)


def draw(runs: dict[str, list[dict[str, Any]]]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(3, 1, figsize=(8, 8), sharex=True, layout="constrained")
    for name, samples in runs.items():
        seconds = [one["seconds"] for one in samples]
        axes[0].plot(seconds, [one["outstanding"] / 1000 for one in samples], label=name)
        axes[1].plot(seconds, [one["resident_mb"] for one in samples], label=name)
        axes[2].plot(seconds[4:], speeds(samples), label=name)
    axes[0].set_ylabel("outstanding records, thousands")
    axes[1].set_ylabel("resident memory, MB")
    axes[2].set_ylabel("acknowledged records a second")
    axes[2].set_xlabel("seconds")
    axes[2].axhline(1_000, color="grey", linestyle=":", linewidth=1)
    for axis in axes:
        axis.set_ylim(bottom=0)
        axis.axvline(SECONDS, color="grey", linestyle="--", linewidth=1)
        axis.grid(visible=True, alpha=0.3)
    axes[0].set_xlim(0, 60)
    axes[0].legend()
    figure.suptitle(f"A copy that reads 10,000 records/s and writes 1,000; reading stops after {SECONDS} s")
    PICTURE.parent.mkdir(exist_ok=True)
    figure.savefig(PICTURE, dpi=110)


def speeds(samples: list[dict[str, Any]]) -> list[float]:
    """Acknowledged records a second, over two seconds."""
    pairs = zip(samples, samples[4:], strict=False)
    return [(b["acknowledged"] - a["acknowledged"]) / (b["seconds"] - a["seconds"]) for a, b in pairs]


if __name__ == "__main__":
    main()
