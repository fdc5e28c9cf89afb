"""Measures what a row costs by layer, beside qubole's connector, and writes the table of docs/explanation/comparison.md."""

import sys
import tempfile
from pathlib import Path

from compare.spark.connectors import connectors
from compare.spark.measuring import measure_layers
from compare.tables import KeptFigures, markdown, write_between_marks

HEADS = ("CPU a row", "JVM, cold", "Python, cold", "sum", "JVM, warm", "Python, warm", "sum")
ROWS = {200: 1_500_000, 1_024: 500_000}
"""By bytes: cold is a run of these rows with the start of Spark, warm are as many after it."""


def main(words: list[str]) -> None:
    figures = KeptFigures("spark-layers.json")
    with tempfile.TemporaryDirectory() as made:
        for connector in connectors(Path(made)):
            if words and not any(word in connector.name for word in words):
                continue
            for size, rows in ROWS.items():
                cold, warm = measure_layers(connector, Path(tempfile.mkdtemp(dir=made)), size, rows)
                figures.add(
                    f"{connector.name}, {size:,} B",
                    {"cold": [cold.java, cold.python], "warm": [warm.java, warm.python]},
                )
    table = markdown(HEADS, [cells(name, row) for name, row in figures.rows.items()])
    write_between_marks("comparison.md", "spark-layers", f"{table}\n\n{figures.conditions}")


def cells(name: str, row: dict[str, list[float]]) -> list[str]:
    return [name, *(f"{value:.1f} us" for layers in (row["cold"], row["warm"]) for value in (*layers, sum(layers)))]


if __name__ == "__main__":
    main(sys.argv[1:])
