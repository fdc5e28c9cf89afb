"""Plays the schedule to the clients and writes the table of docs/explanation/comparison.md: [names of `clients`]."""

import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

from compare.tables import KeptFigures, markdown, write_between_marks
from compare.truth.clients import clients
from compare.truth.playing import world
from servers.moto_server import serve_moto

HEADS = (
    "client",
    "records",
    "lost",
    "repeated",
    "out of order",
    "slowest record",
    "from the kill to the next new record",
)


def main(names: list[str]) -> None:
    figures = KeptFigures("truth.json")
    with tempfile.TemporaryDirectory() as folder, serve_moto() as dynamodb:
        for name, start in clients(Path(folder), dynamodb, names):
            with world(start) as played:
                figures.add(name, asdict(played.play()))
    table = markdown(HEADS, [cells(name, row) for name, row in figures.rows.items()])
    write_between_marks("comparison.md", "truth", f"{table}\n\n{figures.conditions}")


def cells(name: str, row: dict[str, Any]) -> list[str]:
    counts = (str(row[key]) for key in ("records", "lost", "repeated", "out_of_order"))
    recovered = "never" if row["recovered"] is None else f"{row['recovered']:.1f} s"
    return [name, *counts, f"{row['slowest']:.1f} s", recovered]


if __name__ == "__main__":
    main(sys.argv[1:])
