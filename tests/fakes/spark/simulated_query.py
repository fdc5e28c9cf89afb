"""SimulatedQuery: a driver that plans and runs batches over a simulated Kinesis, without Spark."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from recordpublisher.plugins.spark.options.spark_options import SparkOptions
from recordpublisher.plugins.spark.source.batch_planner import BatchPlanner
from recordpublisher.plugins.spark.source.offset import BatchOffset
from recordpublisher.plugins.spark.source.patient_planner import PatientPlanner
from recordpublisher.plugins.spark.source.task_plans import TaskPlan
from recordpublisher.plugins.spark.source.task_read import TaskRead
from recordpublisher.plugins.stores.spark_read_claims import ReadClaimStore

from .simulated_kinesis import SimulatedKinesis

T = TypeVar("T")
Row = tuple[str, str, int]
"""Shard key, sequence number, event time in ms."""


class InlineCalls:
    """Calls of the planner on the test's thread."""

    def result(self, name: str, call: Callable[[], T], seconds: float) -> T:
        return call()


class NoAnswer:
    """Calls of the planner that never end. Waiting for them takes the given time."""

    def __init__(self, clock: Any) -> None:
        self.clock = clock

    def result(self, name: str, call: Callable[[], T], seconds: float) -> T:
        self.clock.sleep(seconds)
        raise TimeoutError


@dataclass
class SimulatedQuery:
    """Runs batches as Spark would: plan, log the offset, read every task, commit the one before."""

    kinesis: SimulatedKinesis
    store: ReadClaimStore
    options: SparkOptions
    log: list[dict[str, object]] = field(default_factory=list)
    rows: dict[int, list[Row]] = field(default_factory=dict)
    planner: PatientPlanner = field(init=False)
    read_task: Callable[[TaskPlan], bool] = lambda plan: True

    def __post_init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """A new driver over the same checkpoint and claims."""
        clock = self.kinesis.clock
        self.kinesis.stop_watching()  # the watch ends with its process
        self.planner = PatientPlanner(
            BatchPlanner(self.options, self.kinesis, self.store, clock), InlineCalls(), clock.sleep
        )

    @property
    def last(self) -> BatchOffset:
        return BatchOffset.from_json(self.log[-1])

    def batch(self) -> bool:
        """Plan and run one batch; False when there was nothing to plan. Spark takes the first offset for new, also the initial one."""
        if not self.log:
            self.log.append(self.planner.initial_offset().to_json())
        planned = self.planner.next_offset(self.last, self.options.max_records)
        if planned == self.last and len(self.log) > 1:
            return False
        self.log.append(planned.to_json())
        if len(self.log) > 2:
            self.planner.commit(BatchOffset.from_json(self.log[-2]))
        self.run_again()
        return True

    def run_again(self) -> None:
        """Read the last planned batch, for the first time or again; its rows replace what the batch gave before."""
        offset = self.last
        plans = self.tasks()
        if offset.waits:  # a batch of Spark's without rows, beside the one that was planned with this number
            assert not plans
            return
        self.rows[offset.batch] = [row for plan in plans if self.read_task(plan) for row in self.rows_of(plan)]

    def tasks(self) -> list[TaskPlan]:
        """The tasks of the last planned batch."""
        return self.planner.partitions(BatchOffset.from_json(self.log[max(0, len(self.log) - 2)]), self.last)

    def rows_of(self, plan: TaskPlan, sleep: Callable[[float], None] = time.sleep) -> list[Row]:
        return rows_of(plan, self.store, self.kinesis, sleep)

    def run(self, batches: int = 200, quiet_plans: int = 30) -> None:
        """Until nothing was planned `quiet_plans` times in a row (0.05 s each), or `batches` times at all."""
        silent = 0
        for _ in range(batches):
            silent = 0 if self.batch() else silent + 1
            if silent > quiet_plans:
                return

    def delivered(self) -> list[tuple[str, str]]:
        """Every row in order of batches: shard key and sequence number."""
        return [row[:2] for batch in sorted(self.rows) for row in self.rows[batch]]

    def expected(self) -> set[tuple[str, str]]:
        return self.kinesis.records()


def rows_of(
    plan: TaskPlan, store: ReadClaimStore, kinesis: SimulatedKinesis, sleep: Callable[[float], None] = time.sleep
) -> list[Row]:
    """Run a task."""
    rows: list[Row] = []
    for batch in TaskRead(plan, store, kinesis.read, kinesis.clock, sleep).rows():
        columns = batch.to_pydict()
        times = [round(event_time.timestamp() * 1000) for event_time in columns["eventTime"]]
        keys = [f"{stream}/{shard}" for stream, shard in zip(columns["stream"], columns["shardId"], strict=True)]
        rows += list(zip(keys, columns["sequenceNumber"], times, strict=True))
    return rows
