"""The command: runs the suites whose sources are given, and prints how many tests passed, failed and cannot be compared, with reasons."""

import argparse
import sys
from pathlib import Path

from .outcomes import report_of
from .recordings import compare_recordings
from .runners import run_async_kinesis, run_kinesalite, run_moto

SUITES = {
    "moto": (run_moto, "a checkout of moto; its package must be importable"),
    "kinesalite": (run_kinesalite, "a checkout of kinesalite with node_modules"),
    "localstack": (
        compare_recordings,
        "a checkout of LocalStack: only the responses that it recorded from AWS are used",
    ),
    "async-kinesis": (run_async_kinesis, "a checkout of async-kinesis; what it needs must be importable"),
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m foreign_suites", description=__doc__)
    for name, (_, text) in SUITES.items():
        parser.add_argument(f"--{name}", type=Path, metavar="FOLDER", help=text)
    given = {name: folder for name, folder in vars(parser.parse_args()).items() if folder is not None}
    if not given:
        parser.print_help()
        return 2
    for name, folder in given.items():
        run, _ = SUITES[name.replace("_", "-")]
        print(report_of(name, run(folder.resolve())), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
