"""`recordpublisher dead-letters`: the records that a job could not use, listed, shown, and replayed."""

from __future__ import annotations

import re
from base64 import b64decode
from collections import Counter
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from recordpublisher.publishers.errors import ConfigurationError, StateError
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.properties.reading_properties import RECORD_PUBLISHER
from recordpublisher.publishers.properties.retry_properties import with_short_outages
from recordpublisher.publishers.safe_text import counted, few_of

from ..execution import FAILED, print_note, run_to_end, subcommands
from ..options import Job, JobProperties, PropertyOptions, is_python_job, search_current_folder, with_properties
from ..output import echo, json_text, table, time_text

if TYPE_CHECKING:
    from recordpublisher.fetcher.pipeline.dead_letter_format import DeadLetter
    from recordpublisher.plugins.dead_letters.base import StoredLetters
    from recordpublisher.plugins.dead_letters.replay import DropTarget, JobTarget, StreamTarget

dead_letters = subcommands(
    "List the dead letters of a job, show one, and replay them.\n\n"
    "Example: recordpublisher dead-letters list job.properties"
)


MOST_REASONS, MOST_REASON_CHARACTERS = 10, 200
"""Limits of the reasons that are shown below a list: the number of reasons, and the characters of each."""
OfQueue = Annotated[bool, typer.Option("--queue", help="Use the dead letters of the job's queue instead of a sink.")]


@dead_letters.command("list")
@with_properties
def list_letters(
    properties: JobProperties,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, help="List at most this many dead letters; all are counted.")
    ] = 100,
    every: Annotated[bool, typer.Option("--all", help="List every dead letter.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON line for each dead letter, with its payload as `show` has it.")
    ] = False,
    queue: OfQueue = False,
) -> None:
    """List the dead letters in the job's dead-letter sink (jsonl, parquet, sql, kinesis). The job may be running.

    The last lines say how many dead letters there are, and how many have each reason.

    Example: recordpublisher dead-letters list job.properties

    Example: recordpublisher dead-letters list job.properties --all --json
    """
    rows: list[tuple[str, ...]] = []
    reasons: Counter[str] = Counter()
    first: dict[str, str] = {}

    async def read() -> int:
        async with _letters(properties, queue) as letters, aclosing(letters.chunks(is_replay=False)) as chunks:
            async for chunk in chunks:
                for letter in chunk:
                    kind = _kind_of_reason(letter)
                    reasons[kind] += 1
                    first.setdefault(kind, (_reason_alone(letter) or kind)[:MOST_REASON_CHARACTERS])
                for letter in chunk if every else chunk[: limit - len(rows)]:
                    rows.append((letter.shard.key, letter.number, _arrival(letter), _reason_alone(letter) or "-"))
                    if as_json:  # Printed at once, because not all payloads may fit into memory.
                        echo(json_text(_fields(letter)))
            return letters.unreadable

    unread = run_to_end(read())
    if not as_json:
        echo(table(("SHARD", "SEQUENCE NUMBER", "ARRIVED", "REASON"), rows))
    total = sum(reasons.values())
    shown = f", {len(rows)} are listed; --all lists every one" if len(rows) < total else ""
    lines = [f"{counted(total, 'dead letter')}{shown}." + (f" Not readable: {unread}." if unread else "")]
    # If the table shows every reason, and each is of its own kind, counts would only repeat it.
    counts = reasons if len(reasons) > 1 and min(len(reasons), len(rows)) < total else {}
    lines += [f"{count} x such as: {first[kind]}" for kind, count in Counter(counts).most_common(MOST_REASONS)]
    more = len(counts) - MOST_REASONS
    lines += [f"and {counted(more, 'other reason')}"] if more > 0 else []
    for line in lines:
        print_note(line)


def _reason_alone(letter: DeadLetter) -> str:
    """Return the reason without the name of the record at its beginning."""
    return (letter.reason or "").removeprefix(f"record {letter.number} of {letter.shard.key} ")


def _kind_of_reason(letter: DeadLetter) -> str:
    """Return the reason without its numbers and quoted values. Reasons of the same kind then have the same text."""
    return re.sub(r"'[^']*'|\"[^\"]*\"|\d+", "...", letter.reason or "no reason is stored")[:MOST_REASON_CHARACTERS]


def _fields(letter: DeadLetter) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "shard": letter.shard.key,
        "sequence_number": letter.number,
        "arrived": _arrival(letter),
        "partition_key": letter.record.partition_key,
    }
    return fields | letter.value()


@dead_letters.command("show")
@with_properties
def show_letter(
    properties: JobProperties,
    number: Annotated[str, typer.Argument(metavar="SEQUENCE", help="A sequence number, as `list` shows it.")],
    queue: OfQueue = False,
) -> None:
    """Show a dead letter as JSON, with its payload as text or base64.

    Example: recordpublisher dead-letters show job.properties 49590338271490256608559692538361571095921575989136588898
    """

    async def find() -> list[DeadLetter]:
        async with _letters(properties, queue) as letters, aclosing(letters.chunks(is_replay=False)) as chunks:
            return [letter async for chunk in chunks for letter in chunk if letter.number == number]

    found = run_to_end(find())
    if not found:
        raise _missing(number)
    for letter in found:
        echo(json_text(_fields(letter)))


class ReplayTarget(StrEnum):
    """Where a replay sends the dead letters."""

    JOB = "job"
    STREAM = "stream"


@dead_letters.command("replay")
@with_properties
def replay_letters_again(
    options: PropertyOptions,
    job: Job,
    to: Annotated[
        ReplayTarget | None,
        typer.Option(
            "--to",
            help="job: only this job's handler or sink. stream: the stream that each record came from, for all its readers. "
            "Default: job; with --queue, back into the queue.",
        ),
    ] = None,
    payloads: Annotated[
        Path | None,
        typer.Option(
            "--payloads",
            metavar="FILE",
            help="Replay only the dead letters in this file, with the payloads there: lines as `list --all --json` prints them.",
        ),
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="SEQUENCE", help="Only this dead letter; may be repeated.")
    ] = None,
    queue: OfQueue = False,
) -> None:
    """Replay every dead letter once, and keep those that fail again. Exits with 1 if one did.

    A dead letter that succeeded is removed. In a stream of dead letters it stays, but the next replay skips it. After a kill, only the dead
    letters that were being replayed may be replayed twice. The job may be running; run one replay at a time.

    Example: recordpublisher dead-letters replay job.properties --to stream

    Example: recordpublisher dead-letters replay job.properties --payloads mended.jsonl
    """

    search_current_folder()
    restores = to is None and queue
    calls_program = is_python_job(job) and not restores and to is not ReplayTarget.STREAM
    read = None if calls_program else with_short_outages(options.read_job(job))
    mended = None if payloads is None else _read_payloads(payloads)

    async def run() -> int:
        from recordpublisher.plugins.dead_letters.replay import DropTarget, JobTarget, StreamTarget
        from recordpublisher.plugins.runtime.job_of_program import fetcher_of_program

        async with AsyncExitStack() as opened:
            target: JobTarget | StreamTarget | DropTarget
            if read is None:
                program = await opened.enter_async_context(fetcher_of_program(job, options.given()))
                properties = with_short_outages(program.properties_for_commands())
                target = JobTarget(properties, program)
            else:
                properties = read
                target = (
                    DropTarget() if restores else StreamTarget(read) if to is ReplayTarget.STREAM else JobTarget(read)
                )
            done, kept, unread = await _replay(properties, target, only or (), queue, mended, restores=restores)
        echo(f"Replayed: {done}. Failed again and kept: {kept}." + (f" Not readable: {unread}." if unread else ""))
        return kept + unread

    if run_to_end(run()):
        raise typer.Exit(FAILED)


@dead_letters.command("drop")
@with_properties
async def drop_letters(
    properties: JobProperties,
    numbers: Annotated[
        list[str] | None, typer.Argument(metavar="SEQUENCE", help="Sequence numbers, as `list` shows them.")
    ] = None,
    all_letters: Annotated[
        bool, typer.Option("--all", help="Drop every dead letter that can be read, instead of chosen ones.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Confirm that --all removes every one.")] = False,
    queue: OfQueue = False,
) -> None:
    """Remove dead letters for good.

    Example: recordpublisher dead-letters drop job.properties 49590338271490256608559692538361571095921575989136588898
    """

    if bool(numbers) is all_letters:
        if all_letters:
            raise ConfigurationError.conflict("--all", "SEQUENCE")
        raise ConfigurationError("SEQUENCE", None, "sequence numbers, or --all")
    if all_letters and not yes:
        raise ConfigurationError.needs("--all", "--yes", reason="it removes every dead letter of the job")

    from recordpublisher.plugins.dead_letters.replay import DropTarget

    done, _, unread = await _replay(properties, DropTarget(), numbers or (), queue)
    echo(f"Dropped: {done}." + (f" Not readable, and kept: {unread}." if unread and all_letters else ""))


async def _replay(
    properties: Properties,
    target: JobTarget | StreamTarget | DropTarget,
    only: Collection[str],
    queue: bool,
    mended: Mapping[tuple[str, str], bytes] | None = None,
    *,
    restores: bool = False,
) -> tuple[int, int, int]:
    """Replay dead letters, and return how many succeeded, how many failed, and how many could not be read.

    - `only`: the sequence numbers of the dead letters to replay. If it is empty, all are replayed.
    - `mended`: new payloads by `Shard.key` and sequence number. If it is given, only these dead letters are replayed.
    - `restores`: whether a queue's dead letters go back into the queue.

    Raises: StateError, after the replay, if there is no dead letter with a requested sequence number; ConfigurationError if `restores` is
    combined with `mended`.
    """
    from recordpublisher.plugins.dead_letters.replay import replay_letters

    if restores and mended is not None:
        reason = "a queue takes its dead letters back unchanged"
        raise ConfigurationError.needs("--payloads", "--to job or --to stream", reason=reason)
    done, kept, missing = 0, 0, dict.fromkeys(only or (number for _, number in mended or ()))
    async with (
        _letters(properties, queue, restores=restores) as letters,
        target,
        aclosing(replay_letters(letters, target, only, mended)) as replaying,
    ):
        async for ended, failed in replaying:
            done, kept = done + len(ended), kept + len(failed)
            for letter, reason in failed:
                is_named = letter.record.sequence_number in reason and letter.shard.key in reason
                echo(reason if is_named else f"{letter.number} of {letter.shard.key}: {reason}")
            for letter in (*ended, *(letter for letter, _ in failed)):
                missing.pop(letter.number, None)
    if missing:
        raise _missing(
            few_of([*missing]),
            f"; {done} of the others {'has' if done == 1 else 'have'} succeeded" if done or kept else "",
        )
    return done, kept, letters.unreadable


def _read_payloads(path: Path) -> dict[tuple[str, str], bytes]:
    """Return the payload of each dead letter in a file, by the `Shard.key` and the sequence number of the dead letter.

    Raises: ConfigurationError, which names the line, if a line is malformed; ConfigurationError if the file cannot be read.
    """
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise ConfigurationError("--payloads", str(path), "a file that can be read", reason=str(error)) from error
    found: dict[tuple[str, str], bytes] = {}
    for number, line in enumerate(lines, 1):
        try:
            letter = msgspec.json.decode(line, type=_Payload)
            found[letter.shard, letter.number] = letter.data
        except ValueError as error:  # ValueError is raised by msgspec, and for invalid base64.
            valid = "lines as `recordpublisher dead-letters list --all --json` prints them"
            raise ConfigurationError("--payloads", str(path), valid, reason=f"line {number}: {error}") from error
    return found


class _Payload(msgspec.Struct, rename="camel"):
    """A line of `list --json`, with the fields that `--payloads` reads."""

    shard: str
    payload: str
    number: str = msgspec.field(name="sequenceNumber")
    base64: bool = False

    @property
    def data(self) -> bytes:
        return b64decode(self.payload, validate=True) if self.base64 else self.payload.encode()


def _missing(number: str, others: str = "") -> StateError:
    return StateError(f"there is no dead letter with the number {number}{others}")


@asynccontextmanager
async def _letters(properties: Properties, queue: bool, *, restores: bool = False) -> AsyncIterator[StoredLetters]:
    letters: StoredLetters
    if queue:
        from recordpublisher.plugins.dead_letters.letters_in_queue import QueueLetters

        if properties.is_set(RECORD_PUBLISHER) and properties.value(RECORD_PUBLISHER) != "QUEUE":
            given, valid = properties.as_given(RECORD_PUBLISHER), "QUEUE, or the command without --queue"
            reason = "--queue is for the dead letters that SQS keeps of a queue"
            raise ConfigurationError(RECORD_PUBLISHER.key, given, valid, reason=reason)

        letters = QueueLetters(properties, restores=restores)
    else:
        from recordpublisher.plugins.dead_letters.replay import stored_letters_of

        letters = stored_letters_of(properties)
    try:
        yield letters
    finally:
        await letters.close()


def _arrival(letter: DeadLetter) -> str:
    return time_text(datetime.fromtimestamp(letter.record.arrival, tz=UTC))
