"""Every expression of the dashboard returns series from a real Prometheus that reads a real job."""

import asyncio
import json
import re

import aiohttp
import pytest

import recordpublisher as rp
from recordpublisher.local import LocalKinesis
from recordpublisher.plugins.metrics.export import FetchersHere, exporters_opened
from recordpublisher.plugins.metrics.prometheus.exporter import PrometheusExporter

from processes.command_line import ROOT

FOLDER = ROOT / "src/recordpublisher/plugins/metrics/prometheus"
DASHBOARD = json.loads((FOLDER / "grafana-dashboard.json").read_text())
EXPRESSIONS = [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]
CONFIGURATION = """
global: {{scrape_interval: 1s, evaluation_interval: 1s}}
rule_files: ["{rules}"]
scrape_configs:
  - job_name: recordpublisher
    static_configs: [{{targets: ["{target}"]}}]
"""


async def server_of(prometheus, folder, target):
    """A Prometheus on a free port of loopback, and its address from its log."""
    configuration = folder / "prometheus.yml"
    configuration.write_text(CONFIGURATION.format(rules=FOLDER / "alert-rules.yml", target=target))
    process = await asyncio.create_subprocess_exec(
        prometheus,
        f"--config.file={configuration}",
        f"--storage.tsdb.path={folder}/data",
        "--web.listen-address=127.0.0.1:0",
        stderr=asyncio.subprocess.PIPE,
    )
    async for line in process.stderr:
        if found := re.search(rb"Listening on.*address=(127.0.0.1:\d+)", line):
            return process, f"http://{found[1].decode()}"
    raise AssertionError("Prometheus has ended")


async def series_of(session, url, expression):
    shown = expression.replace("$stream", ".*").replace("$__rate_interval", "1m")
    async with session.get(f"{url}/api/v1/query", params={"query": shown}) as response:
        if response.status == 503:  # it listens before it is ready
            return []
        answer = await response.json()
    assert answer["status"] == "success", (expression, answer)
    return answer["data"]["result"]


async def empty_expressions(session, url):
    return [expression for expression in EXPRESSIONS if not await series_of(session, url, expression)]


@pytest.mark.slow
async def test_every_expression_of_the_dashboard_returns_series(prometheus, tmp_path):
    async with LocalKinesis(port=0, streams={"orders": 2, "copy": 1}) as kinesis, asyncio.timeout(200):
        for number in range(40):
            kinesis.stream("orders").put(b"%d" % number, str(number))
        properties = rp.Properties(
            {
                **kinesis.properties(),
                "flink.stream.initpos": "TRIM_HORIZON",
                "flink.watermark.lookahead.millis": 60_000,
                "flink.metrics.prometheus.address": "127.0.0.1:0",
            }
        )
        fetcher = rp.DataFetcher("orders", properties, sink=rp.KinesisSink("copy", properties))
        exporter = PrometheusExporter(properties)
        async with exporters_opened([exporter], FetchersHere([fetcher])), fetcher, aiohttp.ClientSession() as session:
            running = asyncio.create_task(fetcher.run())
            process, url = await server_of(prometheus, tmp_path, exporter.url.removeprefix("http://"))
            try:
                while empty := await empty_expressions(session, url):
                    print("without series yet:", *empty, sep="\n  ")
                    assert not running.done()
                    await asyncio.sleep(0.5)
            finally:
                process.kill()
                await process.communicate()
            fetcher.stop()
            await running


def test_every_panel_has_an_expression_and_a_place_of_its_own():
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in DASHBOARD["panels"]]

    assert len(set(places)) == len(places)
    assert all(panel["targets"] for panel in DASHBOARD["panels"])
