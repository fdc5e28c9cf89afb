"""The metrics of a subtask that shares its shards with other processes (E11); 0 or unknown with STATIC assignment."""

from ..metric_types import Metric, MetricType
from .metric_views import SubtaskView

LEASE_METRICS: tuple[Metric[SubtaskView], ...] = (
    Metric(
        "leasesTaken",
        MetricType.COUNTER,
        "shards",
        "ELASTIC: shards that this process took, from others or from nobody",
        lambda view: view.leases.taken,
    ),
    Metric(
        "leasesGiven",
        MetricType.COUNTER,
        "shards",
        "ELASTIC: shards that went from this process to others before they ended",
        lambda view: view.leases.given,
    ),
    Metric(
        "workersSealed",
        MetricType.COUNTER,
        "workers",
        "ELASTIC: workers that this process found silent for the lease duration; their shards go to others",
        lambda view: view.leases.sealed,
    ),
    Metric(
        "workerReplaced",
        MetricType.COUNTER,
        "times",
        "ELASTIC: how often others have replaced the worker of this process: a commit was refused, what it had not stored is read again",
        lambda view: view.leases.replaced,
    ),
    Metric(
        "inFlightWhenReplaced",
        MetricType.COUNTER,
        "records",
        "ELASTIC: records that the sink was writing when this process learned that its worker was replaced: others may write them too",
        lambda view: view.leases.in_flight,
    ),
    Metric(
        "withheldShards",
        MetricType.GAUGE,
        "shards",
        "ELASTIC: shards that another worker should have given up and has not, although it sends heartbeats; one process counts them",
        lambda view: sum(map(len, view.leases.withheld.values())),
    ),
    Metric(
        "unownedShards",
        MetricType.GAUGE,
        "shards",
        "ELASTIC: shards of the group that could be read and that no process reads, when this process last looked",
        lambda view: view.leases.unowned,
    ),
    Metric(
        "unownedMs",
        MetricType.GAUGE,
        "ms",
        "ELASTIC: for how long this process has seen the longest of them without a reader",
        lambda view: round(view.leases.unowned_seconds * 1000),
    ),
    Metric(
        "workersWanted",
        MetricType.GAUGE,
        "workers",
        "ELASTIC: this process's part of the number of workers that the group should have: add those of all processes up",
        lambda view: None if view.tracker.worker is None else round(view.workers_wanted.part, 2),
    ),
)
