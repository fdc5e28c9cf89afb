"""The beginning of a generation on the driver: what Kinesis is asked once, for all lanes."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from recordpublisher.plugins.spark.options import SparkOptions
from recordpublisher.plugins.spark.service.kinesis_service import KinesisService, task_properties
from recordpublisher.plugins.spark.stream_changes import dropped_streams
from recordpublisher.plugins.stores.ports import ObjectStore
from recordpublisher.publishers.clock import Clock

from .generation import Generation, newest_generation
from .identity import spool_id
from .opening import open_generation
from .seeding import starting_state


async def begin_generation(
    options: SparkOptions, store: ObjectStore, lanes: int, clock: Clock
) -> tuple[Generation, SparkOptions]:
    """Open a generation; answers it with the options that its fetchers read with: consumers are registered here, and never by lanes (F8).

    Raises: RecordPublisherError.
    """
    before = await newest_generation(store)
    if before is not None:
        dropped_streams({key.rpartition("/")[0] for key in before.state["shards"]}, options.streams)
    service = await asyncio.to_thread(KinesisService, options)
    try:
        await spool_id(store)
        arns = await asyncio.to_thread(service.consumer_arns)
        generation = await open_generation(
            store, lanes, lambda: asyncio.to_thread(starting_state, options, service), clock
        )
    finally:
        await asyncio.to_thread(service.close)
    return generation, replace(options, properties=task_properties(options.properties, arns))
