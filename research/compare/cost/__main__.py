"""Measures the clients and writes the tables of README.md and docs/explanation/performance.md: [--readers NAME,...] [--sizes BYTES,...]."""

import argparse
import tempfile
from pathlib import Path

from benchmarks.processes import ENVIRONMENT
from compare.cost import figures
from compare.cost.measuring import LOADS, measure
from compare.cost.readers import readers
from servers.moto_server import serve_moto


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--readers", default="", help="only these, by name; default: all")
    parser.add_argument("--sizes", default="", help="only records of these sizes; default: all")
    given = parser.parse_args()
    names, sizes = (set(filter(None, text.split(","))) for text in (given.readers, given.sizes))
    with tempfile.TemporaryDirectory() as folder, serve_moto() as dynamodb:
        ENVIRONMENT["AWS_ENDPOINT_URL_DYNAMODB"] = dynamodb
        chosen = readers(Path(folder), names)
        for load in LOADS:
            for reader in chosen if not sizes or str(load.size) in sizes else []:
                for way in reader.ways:
                    measured = measure(reader, way, load)
                    figures.keep(measured)
                    print(measured, flush=True)
    figures.write_page()


main()
