"""`recordpublisher judge`: what a client has read of a schedule."""

import fileinput
import time
from typing import Annotated

import typer

from ..execution import ALARM, print_note
from ..output import echo


def judge(
    file: Annotated[str, typer.Argument(help="What the client has written; - is stdin.")] = "-",
    schedule: Annotated[str, typer.Option(help="The schedule that was played: a name or a file.")] = "everything",
) -> None:
    """Judge what a consumer has written down of `recordpublisher local --schedule`: lost, repeated, out of order, slowest.

    The consumer, in any language, writes each record's data as a line. A word may stand before it, and after it when it was seen, in
    epoch seconds; default: when it is read here. Status 3: lost or out of order.

    Example: recordpublisher judge records.txt --schedule outage
    """
    from recordpublisher.local.schedules.schedule import load_schedule, score, seen_in

    played, records, others = load_schedule(schedule), [], 0
    with fileinput.input(file, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            seen = seen_in(line, time.time())
            if seen is not None:
                records.append(seen)
            else:
                others += 1
                if others == 1:
                    print_note(f"not a record of the schedule: {line.strip()[:80]}")
    found = score(played.record_count, records, played.keys)
    if others > 1:
        print_note(f"{others} lines are not records of the schedule")
    counts = f"{found.lost} lost, {found.repeated} repeated, {found.out_of_order} out of order"
    echo(f"{found.records} records: {counts}; the slowest came after {found.slowest:.1f} s")
    if found.lost or found.out_of_order:
        raise typer.Exit(ALARM)
