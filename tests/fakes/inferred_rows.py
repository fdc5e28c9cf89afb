"""A real sink of files whose columns follow from the rows of JSON that a test gives it."""

from __future__ import annotations

import json

import recordpublisher as rp
from recordpublisher.plugins.deserializers.schemas import InferColumns, InferredJson

from .batches import batch


class Job:
    """A sink that gets JSON, and the reasons of what it rejects."""

    def __init__(self, kind, folder, first=1, **more):
        self.reasons, self.first = [], first
        self.sink = {"parquet": rp.ParquetSink, "jsonl": rp.JsonlSink}[kind](
            rp.Properties({f"flink.sink.{kind}.path": str(folder), "flink.deserializer.schema": "INFER", **more})
        )

    async def open(self):
        async def reject(records, reason):
            self.reasons.append(reason)

        await self.sink.open(rp.SinkContext(value_type=InferColumns, reject=reject))
        return self

    async def write(self, *values):
        payloads = [json.dumps(value).encode() for value in values]
        records = batch(*payloads, first=self.first).with_columns(event_times=[0 for _ in values])
        self.first += len(values)
        await self.sink.write(records.with_columns(values=InferredJson().values(records)))

    async def commit(self, *values):
        await self.write(*values)
        await self.sink.flush()
