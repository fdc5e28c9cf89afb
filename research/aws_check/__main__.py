"""Asks the cases of a real account and of the endpoint, and prints where they differ: --profile P --prefix NAME --region REGION [--yes]."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

from recordpublisher.local import Delays, serve_in_thread

HERE = Path(__file__).parent
PYTHON = HERE.parents[1] / ".venvs/sdk/bin/python"
PRICE = """It creates a provisioned stream of one shard, an on-demand stream, a consumer and a queue, and deletes them after some minutes.
An estimate of November 2026 for us-east-1, not read from AWS's price list (https://aws.amazon.com/kinesis/data-streams/pricing/): an hour
begun costs shard 0.015, on-demand stream 0.04, consumer and shard 0.015 USD; a hundred calls and kilobytes less than 0.01; the price of
queues is not known to us. Together well below 1 USD, if it is deleted.
After a kill `make aws-clean` deletes it, at once with ALL=--all, else when its hour is over."""


def main(arguments: argparse.Namespace) -> int:
    """Return 1 when a case differs."""
    if not arguments.yes:
        print(PRICE)
        if input("Go on? [y/N] ").strip().lower() != "y":
            return 2
    of_account = observe(arguments.prefix, arguments.region, arguments.endpoint, arguments.profile, poll_seconds=2.0)
    with serve_in_thread(region=arguments.region, delays=Delays(consumer=50)) as endpoint:
        ours = observe(arguments.prefix, arguments.region, endpoint.url, None, poll_seconds=0.05)
    found = differences(of_account, ours)
    print("\n".join(found) or f"All {len(ours)} cases are answered alike.")
    return bool(found)


def observe(
    prefix: str, region: str, endpoint: str | None, profile: str | None, poll_seconds: float
) -> dict[str, object]:
    """The answers to the cases, by today's boto3. Raises: CalledProcessError."""
    options = {"--prefix": prefix, "--region": region, "--endpoint": endpoint, "--profile": profile}
    given = [part for name, value in options.items() if value is not None for part in (name, value)]
    command = [str(PYTHON), str(HERE / "observe.py"), "check", *given, "--poll-seconds", str(poll_seconds)]
    answers: dict[str, object] = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    return answers


def differences(theirs: dict[str, object], ours: dict[str, object]) -> list[str]:
    """One paragraph for each case that was answered in another way."""
    return [
        f"{name}\n  there: {json.dumps(theirs.get(name))}\n  here:  {json.dumps(ours.get(name))}"
        for name in ours
        if theirs.get(name) != ours.get(name)
    ]


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--prefix", required=True)
    parser.add_argument("--region", required=True)
    parser.add_argument("--profile")
    parser.add_argument("--endpoint", help="in place of the account")
    parser.add_argument("--yes", action="store_true", help="do not ask")
    sys.exit(main(parser.parse_args()))
