"""Measures the Spark connectors and writes the table of docs/explanation/comparison.md: [words of their names]."""

import sys
import tempfile
from pathlib import Path

from compare.spark.connectors import connectors
from compare.spark.measuring import measure_cost, measure_kills
from compare.tables import KeptFigures, markdown, write_between_marks

HEADS = (
    "connector",
    "rows a second",
    "CPU a row",
    "from put to the end of a batch",
    "cores used by small batches",
    "records, kills",
    "lost",
    "unread at the end",
    "repeated",
    "from the start after a kill to the end of a batch",
)


def main(words: list[str]) -> None:
    figures = KeptFigures("spark-peers.json")
    with tempfile.TemporaryDirectory() as made:
        for connector in connectors(Path(made)):
            if words and not any(word in connector.name for word in words):
                continue
            folders = [Path(tempfile.mkdtemp(dir=made)) for _ in range(2)]
            cost = measure_cost(connector, folders[0])
            figures.add(connector.name, {**cost, **measure_kills(connector, folders[1])})
    table = markdown(HEADS, [cells(name, row) for name, row in figures.rows.items()])
    write_between_marks("comparison.md", "spark", f"{table}\n\n{figures.conditions}")


def cells(name: str, row: dict[str, float]) -> list[str]:
    return [
        name,
        f"{row['rows_a_second']:,.0f}",
        f"{row['cpu_a_row_us']:.1f} us",
        f"{row['put_to_end_s']:.2f} s",
        f"{row['small_cores']:.2f}",
        f"{row['records']:,}, {row['kills']}",
        f"{row['lost']:,}",
        f"{row['unread']:,}",
        f"{row['repeated']:,}",
        f"{row['restart_s']:.0f} s",
    ]


if __name__ == "__main__":
    main(sys.argv[1:])
