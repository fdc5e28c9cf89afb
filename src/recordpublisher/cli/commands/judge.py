"""`recordpublisher judge`: checks whether a client has read all records of a schedule, once and in order."""

import fileinput
import time
from typing import Annotated

import typer

from ..execution import ALARM, print_note
from ..output import echo


def judge(
    file: Annotated[str, typer.Argument(help="File with the lines of the client; - is stdin.")] = "-",
    schedule: Annotated[str, typer.Option(help="The schedule that was played: a name or a file.")] = "everything",
) -> None:
    """Judge the records that a consumer has read from `recordpublisher local --schedule`: lost, repeated, out of order, slowest.

    The consumer, in any language, writes each record's data as a line. A word may precede the data. The time at which the consumer saw
    the record may follow it, in epoch seconds; without it, the time is when the line is read here. The exit code is 3 if records were
    lost or out of order.

    Example: recordpublisher judge records.txt --schedule outage
    """
    from recordpublisher.local.schedules.schedule import load_schedule, score, seen_record_in

    played, records, others = load_schedule(schedule), [], 0
    with fileinput.input(file, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            seen = seen_record_in(line, time.time())
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
    echo(f"{found.records} records: {counts}; the slowest came {found.slowest:.1f} s after it was put")
    if found.lost or found.out_of_order:
        raise typer.Exit(ALARM)
