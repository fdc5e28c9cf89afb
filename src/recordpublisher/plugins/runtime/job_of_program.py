"""Runs a job that a program makes: `recordpublisher run shop:job`."""

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from recordpublisher.consumer.deserialization import DeserializerArgument
from recordpublisher.fetcher.monitoring.metrics_exporter import MetricsExporter
from recordpublisher.fetcher.monitoring.worker_view import WorkerProgress
from recordpublisher.fetcher.pipeline.bounded_runs import Bounds
from recordpublisher.fetcher.sink import Sink
from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.properties.config_fields import imported
from recordpublisher.publishers.properties.declaration import Property
from recordpublisher.publishers.properties.fan_out_properties import REGISTRATION
from recordpublisher.publishers.properties.job_properties import (
    AVRO_SCHEMA,
    DESERIALIZER,
    GLUE_ENDPOINT,
    PROTOBUF_DESCRIPTOR,
    PROTOBUF_MESSAGE,
    SCHEMA,
    SINK,
)
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.user_code import ForeignExitError, can_take, exits_as_errors

from ..host.build_from_properties import build_metrics_exporters
from ..host.plugin_loading import load_registry
from .argument_checks import COMMAND_OPTIONS, CommandOptions
from .data_fetcher import DataFetcher
from .supervisor import UNBOUNDED, run_fetcher

VALID = "module:name of a DataFetcher, or of a function, plain or async, that returns one or, as an asynccontextmanager, yields one"


async def run_python_job(
    job: str,
    given: Properties,
    change: Callable[[Properties], Properties],
    report: Callable[[WorkerProgress], None],
    exporters: Sequence[MetricsExporter],
    bounds: Bounds = UNBOUNDED,
) -> None:
    """Run the job that the program `job` (module:name) makes, as `run_process` runs the job of a properties file.

    - `given`: properties that take precedence over the job's own.
    - `change`: a function that returns changed properties. It is called after `given` was applied.

    Raises: the errors of `run_process` and of the program; ConfigurationError if a property in `given` cannot have an effect.
    """
    COMMAND_OPTIONS.set(CommandOptions(given, change))
    async with fetcher_from_program(job) as fetcher:
        _refuse_without_effect(fetcher, given)
        fetcher.tell_of_lost_positions()
        own = build_metrics_exporters(load_registry(), fetcher.properties)
        await run_fetcher(fetcher, report, [*own, *exporters], bounds=bounds)


def _refuse_without_effect(fetcher: DataFetcher, given: Properties) -> None:
    """Check that each property in `given` can have an effect. A sink or deserializer that the program has made ignores properties.

    Raises: ConfigurationError if a property in `given` is for such a sink or deserializer.
    """
    formats = tuple(each.key for each in (SCHEMA, AVRO_SCHEMA, GLUE_ENDPOINT, PROTOBUF_MESSAGE, PROTOBUF_DESCRIPTOR))
    choice: Property[Any]
    for key, value in given.items():
        if fetcher.given_sink is not None and key.lower().startswith("flink.sink."):
            choice = SINK
        elif fetcher.given_deserializer is not None and key.lower() in formats:
            choice = DESERIALIZER
        else:
            continue
        kind = choice.key.removeprefix("flink.")
        reason = f"it has no effect, because the program makes the {kind}; change it in the program, or take another {kind} by {choice.key}"
        raise ConfigurationError(key, value, reason=reason)


def describe_program(
    job: str, given: Mapping[str, str]
) -> tuple[Properties, DeserializerArgument[Any] | None, Sink | None]:
    """Return the properties, the deserializer and the sink of the job's fetcher, for a command that describes the job.

    The deserializer or the sink is None if the program has not given it as an object.

    - `given`: properties that take precedence over the job's own.

    Raises: the errors of `fetcher_from_program`.
    """

    async def made() -> tuple[Properties, DeserializerArgument[Any] | None, Sink | None]:
        async with fetcher_of_program(job, given) as fetcher:
            return fetcher.properties_for_commands(), fetcher.given_deserializer, fetcher.given_sink

    return asyncio.run(made())


@asynccontextmanager
async def fetcher_of_program(job: str, given: Mapping[str, str]) -> AsyncIterator[DataFetcher]:
    """Yield the job's fetcher for a command that runs next to the job. The fetcher registers no consumer of enhanced fan-out.

    Raises: the errors of `fetcher_from_program`.
    """

    def change(own: Properties) -> Properties:
        return own.merged({REGISTRATION.key: "LAZY"}) if own.value(REGISTRATION) == "EAGER" else own

    COMMAND_OPTIONS.set(CommandOptions(Properties(given), change))
    async with fetcher_from_program(job) as fetcher:
        yield fetcher


@asynccontextmanager
async def fetcher_from_program(job: str) -> AsyncIterator[DataFetcher]:
    """Yield the fetcher that the program `job` (module:name) makes. The fetcher is not opened.

    If the program is a function with a `yield`, its resources are closed at the end.

    Raises: ConfigurationError if `job` does not lead to a DataFetcher, or if the function cannot be called.
    """
    made = imported(job, "JOB", VALID)
    if callable(made):
        if not can_take(made, 0):
            raise ConfigurationError("JOB", job, VALID, reason="it cannot be called without arguments")
        try:
            with exits_as_errors(is_import=False):
                made = made()
                if inspect.isawaitable(made):
                    made = await made
        except ForeignExitError as error:
            raise ConfigurationError("JOB", job, VALID, reason=str(error)) from error
    async with AsyncExitStack() as opened:
        if not isinstance(made, DataFetcher) and hasattr(made, "__aenter__"):
            made = await opened.enter_async_context(made)
        if not isinstance(made, DataFetcher):
            raise ConfigurationError("JOB", job, VALID, reason=f"it gives an object of the type {type(made).__name__}")
        yield made
