"""A fetcher as metrics exporters see it, with metrics of a real run on virtual time."""

from dataclasses import dataclass, field
from typing import Any

from recordpublisher.fetcher.metric_types import SinkMetric
from recordpublisher.fetcher.pipeline.bounded_runs import Bounds
from recordpublisher.plugins.sinks.kinesis import KinesisSink
from recordpublisher.testing.virtual_time import run_virtual

from fakes.scripted_source import RecordingSink, ScriptedSource, make_fetcher


def metrics_of_a_run(*shards: str) -> dict[str, Any]:
    """The metrics after a run that read two records of each shard."""

    async def run() -> dict[str, Any]:
        source = ScriptedSource()
        for shard in shards:
            source.add(shard, 1_700_000_000_000, 1_700_000_000_500)
        fetcher = make_fetcher(source, RecordingSink())
        await fetcher.open()
        await fetcher.run_bounded(Bounds(stop_at_tip=True))
        metrics = fetcher.metrics()
        await fetcher.close()
        return metrics

    return run_virtual(run())


METRICS = metrics_of_a_run("a", "b")
SINK = KinesisSink("out", {"aws.region": "eu-west-1"}).exported_metrics()


@dataclass
class MeasuredFetcher:
    """Answers with the given metrics and reasons."""

    process: int = 0
    given: dict[str, Any] = field(default_factory=lambda: METRICS)
    reasons: list[str] = field(default_factory=list)
    sink: list[SinkMetric] = field(default_factory=list)
    job_name: str = ""

    def metrics(self) -> dict[str, Any]:
        return self.given

    def sink_metrics(self) -> list[SinkMetric]:
        return self.sink

    def reasons_not_ready(self) -> list[str]:
        return self.reasons
