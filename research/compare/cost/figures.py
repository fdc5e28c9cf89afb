"""The figures, kept in research/compare/peers.json, and the tables that are made from them."""

import json
from dataclasses import asdict

from compare.cost.measuring import Measured
from compare.tables import markdown, write_between_marks
from compare.tools import HERE

FILE = HERE / "peers.json"
PAGE = HERE / "README.md"
"""With everything that was measured; the page for users has the medians."""


def kept() -> list[Measured]:
    return [Measured(**each) for each in json.loads(FILE.read_text())] if FILE.exists() else []


def keep(measured: Measured) -> None:
    """Add it, or replace the former one of that client, way and size."""

    def key(each: Measured) -> tuple[str, str, int]:
        return each.name, each.way, each.size

    known = {key(each): each for each in kept()} | {key(measured): measured}
    FILE.write_text(json.dumps([asdict(each) for each in known.values()], indent=1) + "\n")


def write_page() -> None:
    """Write the tables between the marks of both pages."""
    rows = kept()
    for way in sorted({row.way for row in rows}):
        write_between_marks(str(PAGE), f"peers: {way}", table(rows, way))
    write_between_marks("performance.md", "peers", medians(rows))


def medians(rows: list[Measured]) -> str:
    """For users: a row for each client, the one that polls small records cheapest first."""
    columns = [(way, size) for way in ("polling", "fan-out") for size in (200, 1024)]
    cells = {
        name: {(row.way, row.size): row for row in rows if row.name == name} for name in {row.name for row in rows}
    }
    ordered = sorted(cells.items(), key=lambda found: found[1]["polling", 200].cpu)
    heads = ["client", *(f"{way}, {size:,} B" for way, size in columns), "memory"]
    lines = [
        [
            name,
            *(f"{of[each].cpu:.1f} us" if each in of else "" for each in columns),
            f"{max(row.memory for row in of.values()):.0f} MB",
        ]
        for name, of in ordered
    ]
    return markdown(heads, lines)


def table(rows: list[Measured], way: str) -> str:
    """The table of one way of reading: a row for each client, cheapest first."""
    of_way = [row for row in rows if row.way == way]
    sizes = sorted({row.size for row in of_way})
    clients = {row.name: {each.size: each for each in of_way if each.name == row.name} for row in of_way}
    ordered = sorted(clients.values(), key=lambda found: min(found.values(), key=lambda row: row.size).cpu)
    heads = ["client", *(f"CPU, {size:,} B" for size in sizes), "memory", "latency p50", "p99", "load"]
    days = " and ".join(sorted({row.day for row in of_way}))
    return f"{markdown(heads, [_cells(found, sizes) for found in ordered])}\n\n*Measured {days}.*"


def _cells(found: dict[int, Measured], sizes: list[int]) -> list[str]:
    any_row = next(iter(found.values()))
    smallest = found[min(found)]
    loads = [row.load for row in found.values()]
    return [
        f"{any_row.name} {any_row.version}",
        *(_cpu(found.get(size)) for size in sizes),
        f"{max(row.memory for row in found.values()):.0f} MB",
        f"{smallest.p50:.1f} ms",
        f"{smallest.p99:.1f} ms",
        f"{min(loads):g} to {max(loads):g}",
    ]


def _cpu(row: Measured | None) -> str:
    return "" if row is None else f"{row.cpu:.2f} us ({row.cpu_low:.2f} to {row.cpu_high:.2f})"
