"""`recordpublisher demo`: a Spark job on real flights, with checks of its output."""

from pathlib import Path
from typing import Annotated

import typer

from recordpublisher.publishers.errors import ConfigurationError

from ..execution import FAILED, print_error

PUBLISHERS = ("EFO", "POLLING")


def demo(
    publisher: Annotated[str, typer.Option(help="Publisher of the job: EFO or POLLING.")] = "EFO",
    seconds: Annotated[float, typer.Option(min=20, help="Duration of the year of flights in seconds.")] = 125,
    kill: Annotated[
        bool, typer.Option("--kill", help="Kill the Spark job (kill -9) while it runs, and start it again.")
    ] = False,
    folder: Annotated[Path | None, typer.Option(help="Keep all files in this folder; it must not exist yet.")] = None,
) -> None:
    """Send 336,776 real flights to an embedded stream and read them with Spark, aligned in event time.

    Example: recordpublisher demo --seconds 60 --folder flights
    """
    if publisher.upper() not in PUBLISHERS:
        raise ConfigurationError("--publisher", publisher, ", ".join(PUBLISHERS))
    if folder is not None and folder.exists():
        raise ConfigurationError("--folder", str(folder), "a folder that does not exist yet")
    from recordpublisher.demo.runner import DemoConfig, run_demo

    checks = run_demo(DemoConfig(publisher.upper(), seconds, kill, folder))
    for check in checks:
        print(f"{'ok  ' if check.passed else 'FAIL'}  {check.name}: {check.found}")
    failed = sum(not check.passed for check in checks)
    if failed:
        print_error(f"{failed} of {len(checks)} checks failed")
        raise typer.Exit(FAILED)
    print(f"{len(checks)} of {len(checks)} checks passed: every flight was written once")
