"""LegacyQuery: a query as Spark 4.0 and 4.1 run it, which may be killed between any two calls."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from recordpublisher.plugins.spark.options.spark_options import SparkOptions
from recordpublisher.plugins.spark.source.batch_planner import BatchPlanner
from recordpublisher.plugins.spark.source.patient_planner import PatientPlanner
from recordpublisher.plugins.spark.stream_reader import ReaderWithoutStart
from recordpublisher.plugins.stores.spark_read_claims import ReadClaimStore

from .simulated_kinesis import SimulatedKinesis
from .simulated_query import InlineCalls, Row, rows_of


@dataclass(frozen=True)
class FixedOptions:
    """A source whose options are read already."""

    parsed: SparkOptions
    options: Mapping[str, str] = field(default_factory=dict)

    def query_options(self) -> SparkOptions:
        return self.parsed


class KilledError(Exception):
    """The driver is killed here."""


@dataclass
class LegacyQuery:
    """The checkpoint and the sink of a query, and its runs, each in a driver of its own. The calls are those seen on 4.0.2 and 4.1.1.

    `offsets` is Spark's log of offsets, as JSON; `committed` counts the batches in its log of commits. `sink` takes each batch once, and
    `again` counts those that it was given again. `between_calls` may raise KilledError.
    """

    kinesis: SimulatedKinesis
    store: ReadClaimStore
    options: SparkOptions
    offsets: list[str] = field(default_factory=list)
    committed: int = 0
    sink: dict[int, list[Row]] = field(default_factory=dict)
    again: int = 0
    between_calls: Callable[[], None] = lambda: None

    def run(self, triggers: int, *, has_wrapper: bool = False) -> None:
        """A driver that asks for an offset `triggers` times.

        `has_wrapper`: an AvailableNow run for which `spark.sql.streaming.triggerAvailableNowWrapper.enabled` is true.
        """
        reader = self._new_reader()
        fetched = self._offset_of(reader) if has_wrapper else None
        if self.offsets:
            last = json.loads(self.offsets[-1])
            assert reader.partitions(last, last) == []
            self.between_calls()
        if len(self.offsets) > self.committed:
            self._run_batch(reader)
        for _ in range(triggers):
            self._trigger(reader, fetched or self._offset_of(reader))

    def run_available_now(self) -> None:
        """A driver of one batch: the one that was not committed, or a new one."""
        self.run(0 if len(self.offsets) > self.committed else 1)

    def delivered(self) -> list[tuple[str, str]]:
        """Shard key and sequence number of every row in the sink, in order of batches."""
        return [row[:2] for batch in sorted(self.sink) for row in self.sink[batch]]

    def _new_reader(self) -> ReaderWithoutStart:
        clock = self.kinesis.clock
        self.kinesis.stop_watching()
        planner = PatientPlanner(
            BatchPlanner(self.options, self.kinesis, self.store, clock), InlineCalls(), clock.sleep
        )
        return ReaderWithoutStart(FixedOptions(self.options), None, planner)

    def _offset_of(self, reader: ReaderWithoutStart) -> str:
        offset = json.dumps(reader.latestOffset())
        self.between_calls()
        return offset

    def _trigger(self, reader: ReaderWithoutStart, offset: str) -> None:
        if self.offsets and offset == self.offsets[-1]:
            return
        self.offsets.append(offset)
        self.between_calls()
        self._run_batch(reader)

    def _run_batch(self, reader: ReaderWithoutStart) -> None:
        batch = len(self.offsets) - 1
        start = json.loads(self.offsets[-2]) if batch else reader.initialOffset()
        self.between_calls()
        rows: list[Row] = []
        for partition in reader.partitions(start, json.loads(self.offsets[-1])):
            self.between_calls()
            rows += rows_of(partition.plan, self.store, self.kinesis)
        self.between_calls()
        if batch in self.sink:
            self.again += 1
            assert rows == self.sink[batch], "a batch has other rows when it runs again"
        self.sink[batch] = rows
        self.between_calls()
        self.committed += 1
        self.between_calls()


def killed_after(calls: int) -> Callable[[], None]:
    """What is passed as `between_calls`: it raises KilledError at this call."""
    left = calls

    def count() -> None:
        nonlocal left
        left -= 1
        if left <= 0:
            raise KilledError

    return count
