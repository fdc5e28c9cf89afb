"""The examples for KEDA and a HorizontalPodAutoscaler name a metric and labels that the exporter's page has."""

import re

import pytest
import yaml

import recordpublisher as rp
from recordpublisher.local import serve_in_thread
from recordpublisher.plugins.metrics.export import FetchersOfProcess
from recordpublisher.plugins.metrics.prometheus.exporter import metrics_page

from processes.command_line import ROOT

FOLDER = ROOT / "examples/deploy"
KEDA, HPA, DEPLOYMENT = (
    yaml.safe_load((FOLDER / f"kubernetes-{name}.yml").read_text())
    for name in ("scaling-keda", "scaling-hpa", "elastic")
)
OF_PROMETHEUS = {"namespace", "pod"}
"""Labels of every metric of a pod that Prometheus has found in Kubernetes."""


@pytest.fixture
async def page(tmp_path):
    """What Prometheus reads of a process in a group."""
    with serve_in_thread(streams={"orders": 2}) as served:
        group = {
            "flink.job.workers": "GROUP",
            "flink.state.uri": f"{tmp_path}/group",
            "flink.job.name": "orders",
        }
        async with rp.DataFetcher("orders", {**served.properties(), **group}, sink=rp.MemorySink()) as fetcher:
            await fetcher.run_bounded(max_time=0.1)
            here = FetchersOfProcess([fetcher])
            return metrics_page(await here.metrics(), await here.health())


def labels_of(page, metric):
    """The labels of each line of a metric; none: it is not there."""
    return [set(re.findall(r"(\w+)=", labels)) for labels in re.findall(rf"(?m)^{metric}{{(.*)}} ", page)]


async def test_the_query_of_keda_finds_the_metric(page):
    ((metric, filters),) = re.findall(r"(recordpublisher_\w+){(.*?)}", KEDA["spec"]["triggers"][0]["metadata"]["query"])

    (labels,) = labels_of(page, metric)
    assert set(re.findall(r"(\w+)=", filters)) <= labels | OF_PROMETHEUS


async def test_the_autoscaler_finds_the_metric(page):
    (metric,) = HPA["spec"]["metrics"]

    assert labels_of(page, metric["pods"]["metric"]["name"])
    assert metric["pods"]["target"] == {"type": "AverageValue", "averageValue": "1"}


@pytest.mark.parametrize("example", [KEDA, HPA], ids=["keda", "hpa"])
def test_the_deployment_that_is_scaled_is_that_of_the_group(example):
    assert example["spec"]["scaleTargetRef"]["name"] == DEPLOYMENT["metadata"]["name"]


async def test_without_a_group_there_is_no_such_metric():
    with serve_in_thread(streams={"orders": 1}) as served:
        async with rp.DataFetcher("orders", served.properties(), sink=rp.MemorySink()) as fetcher:
            page = metrics_page(await FetchersOfProcess([fetcher]).metrics(), [])

    assert not labels_of(page, "recordpublisher_worker_workers_wanted")
