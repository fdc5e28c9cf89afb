"""Draws which worker read each shard when, and how many records each of them wrote."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib as mpl
import numpy as np

from groups.worker_group import Written

SLOT_SECONDS = 0.5
RATE_SECONDS = 2


def draw(written: Mapping[str, Sequence[Written]], began: Mapping[str, float], picture: Path) -> None:
    """`began`: when each phase began, by what it is called."""
    mpl.use("Agg")
    from matplotlib import pyplot
    from matplotlib.colors import ListedColormap

    first = min(began.values())
    last = max(each.seconds for lines in written.values() for each in lines)
    colors = [*pyplot.get_cmap("Set2").colors][: len(written)]
    figure, (rates, readers) = pyplot.subplots(2, 1, sharex=True, figsize=(9, 6), height_ratios=(1, 2))
    seconds = np.arange(0, last - first, RATE_SECONDS)
    counts = [_per_second(lines, first, len(seconds)) for lines in written.values()]
    rates.stackplot(seconds, counts, labels=[*written], colors=colors, step="post")
    rates.set_ylabel("records/s written")

    slots = _readers(written, first, last)
    masked = np.ma.masked_less(slots, 0)
    readers.imshow(
        masked,
        aspect="auto",
        interpolation="none",
        cmap=ListedColormap(colors),
        vmin=-0.5,
        vmax=len(written) - 0.5,
        extent=(0, slots.shape[1] * SLOT_SECONDS, slots.shape[0], 0),
    )
    readers.set_ylabel("shard; white: nothing written")
    readers.set_xlabel("seconds")
    for axis in (rates, readers):
        for each in began.values():
            axis.axvline(each - first, color="black", linewidth=1, linestyle="--")
    for name, each in began.items():
        rates.text(each - first + 0.5, rates.get_ylim()[1] * 1.02, name)
    figure.legend(*rates.get_legend_handles_labels(), loc="lower center", ncol=len(written), frameon=False, fontsize=8)
    figure.tight_layout(rect=(0, 0.04, 1, 1))
    figure.savefig(picture, dpi=110)


def _per_second(lines: Sequence[Written], first: float, slots: int) -> list[float]:
    counts = Counter(int((each.seconds - first) // RATE_SECONDS) for each in lines)
    return [counts[slot] / RATE_SECONDS for slot in range(slots)]


def _readers(written: Mapping[str, Sequence[Written]], first: float, last: float) -> np.ndarray:
    """For each shard and slot of time the number of the worker that wrote last; -1: nobody."""
    shards = sorted({each.shard for lines in written.values() for each in lines})
    found = np.full((len(shards), int((last - first) / SLOT_SECONDS) + 1), -1)
    rows = {shard: row for row, shard in enumerate(shards)}
    for number, lines in enumerate(written.values()):
        for each in lines:
            if each.seconds >= first:
                found[rows[each.shard], int((each.seconds - first) / SLOT_SECONDS)] = number
    return found
