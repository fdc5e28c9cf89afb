"""`recordpublisher dead-letters`: the records that a job could not use, listed, shown, and replayed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from recordpublisher.publishers.errors import ConfigurationError, StateError
from recordpublisher.publishers.properties.properties import Properties

from ..execution import FAILED, run_to_end, run_until_signal, subcommands
from ..options import Job, JobProperties, PropertyOptions, is_python_job, search_current_folder, with_properties
from ..output import echo, json_text, table, time_text

if TYPE_CHECKING:
    from recordpublisher.fetcher.pipeline.dead_letter_format import DeadLetter
    from recordpublisher.plugins.dead_letters.replay import DropTarget, HandlerTarget, StreamTarget
    from recordpublisher.plugins.dead_letters.stored_letters import StoredLetters

dead_letters = subcommands(
    "List the dead letters of a job, show one, and replay them.\n\n"
    "Example: recordpublisher dead-letters list job.properties"
)


OfQueue = Annotated[bool, typer.Option("--queue", help="Those of the job's queue, in place of a sink.")]


class Target(StrEnum):
    """Where letters are replayed."""

    HANDLER = "handler"
    STREAM = "stream"


@dead_letters.command("list")
@with_properties
def list_letters(
    properties: JobProperties,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="At most so many.")] = 100,
    queue: OfQueue = False,
) -> None:
    """List the letters in the job's dead-letter sink (jsonl, parquet, sql, kinesis). The job may be running.

    Example: recordpublisher dead-letters list job.properties
    """

    async def first() -> list[DeadLetter]:
        found: list[DeadLetter] = []
        async with _letters(properties, queue) as letters, aclosing(letters.chunks(is_replay=False)) as chunks:
            async for chunk in chunks:
                found += chunk[: limit - len(found)]
                if len(found) == limit:
                    break
        return found

    rows = [(letter.shard.key, letter.number, _arrival(letter), letter.reason or "-") for letter in run_to_end(first())]
    echo(table(("SHARD", "SEQUENCE NUMBER", "ARRIVED", "REASON"), rows))


@dead_letters.command("show")
@with_properties
def show(
    properties: JobProperties,
    number: Annotated[str, typer.Argument(metavar="SEQUENCE", help="A sequence number, as `list` shows it.")],
    queue: OfQueue = False,
) -> None:
    """Show a letter as JSON, with its payload as text or base64.

    Example: recordpublisher dead-letters show job.properties 49590338271490256608559692538361571095921575989136588898
    """

    async def find() -> list[DeadLetter]:
        async with _letters(properties, queue) as letters, aclosing(letters.chunks(is_replay=False)) as chunks:
            return [letter async for chunk in chunks for letter in chunk if letter.number == number]

    found = run_to_end(find())
    if not found:
        raise _missing(number)
    for letter in found:
        fields: dict[str, Any] = {
            "shard": letter.shard.key,
            "sequence_number": letter.number,
            "arrived": _arrival(letter),
            "partition_key": letter.record.partition_key,
        }
        echo(json_text(fields | letter.value()))


@dead_letters.command("replay")
@with_properties
def replay(
    options: PropertyOptions,
    job: Job,
    to: Annotated[
        Target | None,
        typer.Option(
            "--to",
            help="The handler of the job, or the stream that each came from. Default: handler; with --queue, back into the queue.",
        ),
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="SEQUENCE", help="Only this letter; may be repeated.")
    ] = None,
    queue: OfQueue = False,
) -> None:
    """Replay every letter once, and keep what fails again. Exits with 1 if something did.

    A letter that succeeded is removed (in a stream: passed over). A kill repeats at most what was being replayed. The job may be running;
    run one replay at a time.

    Example: recordpublisher dead-letters replay job.properties --to stream
    """

    search_current_folder()
    restores = to is None and queue
    calls_program = is_python_job(job) and not restores and to is not Target.STREAM
    read = None if calls_program else options.read(job)

    async def run() -> int:
        from recordpublisher.plugins.dead_letters.replay import DropTarget, HandlerTarget, StreamTarget
        from recordpublisher.plugins.runtime.jobs.python_job import fetcher_beside

        async with AsyncExitStack() as opened:
            target: HandlerTarget | StreamTarget | DropTarget
            if read is None:
                program = await opened.enter_async_context(fetcher_beside(job, options.given()))
                properties = program.described()
                target = HandlerTarget(properties, program)
            else:
                properties = read
                target = (
                    DropTarget() if restores else StreamTarget(read) if to is Target.STREAM else HandlerTarget(read)
                )
            done, kept, unread = await _replay(properties, target, only or (), queue, restores=restores)
        echo(f"Replayed: {done}. Failed again and kept: {kept}." + (f" Not readable: {unread}." if unread else ""))
        return kept + unread

    if run_until_signal(run()):
        raise typer.Exit(FAILED)


@dead_letters.command("drop")
@with_properties
async def drop(
    properties: JobProperties,
    numbers: Annotated[
        list[str] | None, typer.Argument(metavar="SEQUENCE", help="Sequence numbers, as `list` shows them.")
    ] = None,
    all_letters: Annotated[
        bool, typer.Option("--all", help="Every letter that can be read, in place of numbers.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Remove them, with --all.")] = False,
    queue: OfQueue = False,
) -> None:
    """Remove letters for good.

    Example: recordpublisher dead-letters drop job.properties 49590338271490256608559692538361571095921575989136588898
    """

    if bool(numbers) is all_letters:
        raise ConfigurationError("--all", " ".join(numbers or ()) or None, "sequence numbers, or --all")
    if all_letters and not yes:
        raise ConfigurationError("--yes", None, "--yes", reason="it removes every dead letter of the job")

    from recordpublisher.plugins.dead_letters.replay import DropTarget

    done, _, unread = await _replay(properties, DropTarget(), numbers or (), queue)
    echo(f"Dropped: {done}." + (f" Not readable, and kept: {unread}." if unread and all_letters else ""))


async def _replay(
    properties: Properties,
    target: HandlerTarget | StreamTarget | DropTarget,
    only: Collection[str],
    queue: bool,
    *,
    restores: bool = False,
) -> tuple[int, int, int]:
    """How many succeeded, failed, and could not be read. Raises: StateError for numbers that none has, when the others are done."""
    from recordpublisher.plugins.dead_letters.replay import replayed

    done, kept, missing = 0, 0, dict.fromkeys(only)
    async with _letters(properties, queue, restores=restores) as letters, target:
        async for ended, failed in replayed(letters, target, only):
            done, kept = done + len(ended), kept + len(failed)
            for letter, reason in failed:
                echo(f"{letter.number} of {letter.shard.key}: {reason}")
            for letter in (*ended, *(letter for letter, _ in failed)):
                missing.pop(letter.number, None)
    if missing:
        raise _missing(
            ", ".join(missing), f"; of the others {done} {'is' if done == 1 else 'are'} done" if done or kept else ""
        )
    return done, kept, letters.unreadable


def _missing(number: str, others: str = "") -> StateError:
    return StateError(f"there is no dead letter with the number {number}{others}")


@asynccontextmanager
async def _letters(properties: Properties, queue: bool, *, restores: bool = False) -> AsyncIterator[StoredLetters]:
    letters: StoredLetters
    if queue:
        from recordpublisher.plugins.dead_letters.queue import QueueLetters

        letters = QueueLetters(properties, restores=restores)
    else:
        from recordpublisher.plugins.dead_letters.stored_letters import stored_letters_of

        letters = stored_letters_of(properties)
    try:
        yield letters
    finally:
        await letters.close()


def _arrival(letter: DeadLetter) -> str:
    return time_text(datetime.fromtimestamp(letter.record.arrival, tz=UTC))
