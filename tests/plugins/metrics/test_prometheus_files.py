"""The alert rules fire when they should, and every panel of the dashboard shows something."""

import asyncio
import json
import re
import subprocess

import aiohttp
import pytest
import yaml

import recordpublisher as rp
from recordpublisher.fetcher.monitoring.metrics_exporter import WorkerHealth, WorkerMetrics
from recordpublisher.local import LocalKinesis
from recordpublisher.plugins.metrics.export import FetchersOfProcess, open_exporters
from recordpublisher.plugins.metrics.prometheus.exporter import PrometheusExporter, metrics_page

from fakes.monitoring.measured_fetcher import METRICS, SINK, MeasuredFetcher
from processes.command_line import ROOT

FILE = ROOT / "src/recordpublisher/plugins/metrics/prometheus/alert-rules.yml"
RULES = {rule["alert"]: rule for rule in yaml.safe_load(FILE.read_text())["groups"][0]["rules"]}
WORKER, SHARD = 'process="1"', 'stream="s",shard="a",process="1"'
MINUTES = 30

SINKS = [*SINK, *rp.MapSink(print).exported_metrics()]
SKIPPED = f"recordpublisher_sink_skipped_total{{{WORKER}}}"
FIRING = {
    "RecordPublisherDown": ('up{job="recordpublisher"}', "0"),
    "RecordPublisherWorkerSilent": (f"recordpublisher_worker_up{{{WORKER}}}", "0"),
    "RecordPublisherNotReady": (f"recordpublisher_worker_ready{{{WORKER}}}", "0"),
    "RecordPublisherLossNear": (f"recordpublisher_shard_time_to_retention_loss_seconds{{{SHARD}}}", "3600"),
    "RecordPublisherRecordsLost": (f"recordpublisher_shard_retention_gaps_total{{{SHARD}}}", "0+1"),
    "RecordPublisherBehind": (f"recordpublisher_shard_lag_seconds{{{SHARD}}}", "301"),
    "RecordPublisherShardUnread": (f"recordpublisher_shard_alarm{{{SHARD}}}", "1"),
    "RecordPublisherWatermarkStalled": (f"recordpublisher_worker_watermark_stalled_seconds{{{WORKER}}}", "301"),
    "RecordPublisherCheckpointStuck": (f"recordpublisher_worker_checkpoint_running_seconds{{{WORKER}}}", "61"),
    "RecordPublisherShardsUnowned": (f"recordpublisher_worker_unowned_seconds{{{WORKER}}}", "41"),
    "RecordPublisherShardsWithheld": (f"recordpublisher_worker_withheld_shards{{{WORKER}}}", "1"),
    "RecordPublisherWorkerSealed": (f"recordpublisher_worker_workers_sealed_total{{{WORKER}}}", "0+1"),
    "RecordPublisherWorkerReplaced": (f"recordpublisher_worker_replaced_total{{{WORKER}}}", "0+1"),
    "RecordPublisherBadRecords": (f"recordpublisher_worker_dead_letters_total{{{WORKER}}}", "0+1"),
    "RecordPublisherThrottled": (f"recordpublisher_shard_throttles_total{{{SHARD}}}", "0+60"),
    "RecordPublisherSinkThrottled": (f"recordpublisher_sink_throttles_total{{{WORKER}}}", "0+120"),
    "RecordPublisherSinkFailing": (f"recordpublisher_sink_failed_records_total{{{WORKER}}}", "0+1"),
    "RecordPublisherSinkUnreachable": (f"recordpublisher_sink_failed_requests_total{{{WORKER}}}", "0+60"),
    "RecordPublisherStarved": (f"recordpublisher_worker_loop_lag_seconds{{{WORKER}}}", "2"),
}
"""A series for each alert, with its value or its growth in a minute."""

HEALTHY = {
    **{series: "0" for series, _ in FIRING.values()},
    **{series: "1" for series, _ in FIRING.values() if series.split("{")[0].endswith(("up", "_ready"))},
    FIRING["RecordPublisherLossNear"][0]: "86000",
    f"recordpublisher_worker_skipped_records_total{{{WORKER}}}": "0",
    SKIPPED: "0",
}
"""The same series as a healthy job has them."""


def case(firing, expected):
    """Prometheus's test of these series, each minute for half an hour."""
    values = {
        series: f"{value}x{MINUTES}" if "+" in value else f"{value}+0x{MINUTES}" for series, value in firing.items()
    }
    return {
        "interval": "1m",
        "input_series": [{"series": series, "values": shown} for series, shown in values.items()],
        "alert_rule_test": [
            {"eval_time": f"{MINUTES}m", "alertname": alert, "exp_alerts": expected.get(alert, [])} for alert in RULES
        ],
    }


def alert_of(name, series=None):
    """What Prometheus is expected to send: the labels of the series and of the rule."""
    series = series or FIRING[name][0]
    given = dict(pair.split("=", 1) for pair in series[:-1].partition("{")[2].split(","))
    labels = {label: value.strip('"') for label, value in given.items()}
    return {"exp_labels": {**labels, **RULES[name]["labels"]}}


def judge(promtool, folder, cases):
    """Run the cases; JSON is YAML. The texts are left out of the rules: how a duration is written is Prometheus's matter."""
    bare = [{key: value for key, value in rule.items() if key != "annotations"} for rule in RULES.values()]
    (folder / "rules.json").write_text(json.dumps({"groups": [{"name": "recordpublisher", "rules": bare}]}))
    (folder / "tests.json").write_text(json.dumps({"rule_files": ["rules.json"], "tests": cases}))
    return run(promtool, "test", "rules", str(folder / "tests.json"))


def page():
    return metrics_page([WorkerMetrics(0, METRICS["worker"], METRICS["shards"], SINKS)], [WorkerHealth(0, True, [])])


def run(*command, given=""):
    return subprocess.run(command, input=given, capture_output=True, text=True, timeout=60, check=False)


def test_the_rules_are_valid(promtool):
    checked = run(promtool, "check", "rules", str(FILE))

    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_every_alert_has_a_series_that_fires_it():
    assert FIRING.keys() == RULES.keys()


@pytest.mark.slow
def test_each_alert_fires_and_no_other(promtool, tmp_path):
    cases = [case({**HEALTHY, series: value}, {name: [alert_of(name)]}) for name, (series, value) in FIRING.items()]
    cases.append(
        case(
            {**HEALTHY, SKIPPED: "0+1"}, {"RecordPublisherBadRecords": [alert_of("RecordPublisherBadRecords", SKIPPED)]}
        )
    )
    judged = judge(promtool, tmp_path, cases)

    assert judged.returncode == 0, judged.stdout + judged.stderr


def test_no_alert_fires_for_a_healthy_job(promtool, tmp_path):
    judged = judge(promtool, tmp_path, [case(HEALTHY, {})])

    assert judged.returncode == 0, judged.stdout + judged.stderr


COUNTERS = {name: series for name, (series, _) in FIRING.items() if "increase(" in RULES[name]["expr"]}


@pytest.mark.parametrize(
    ("values", "fires"), [("_x24 6x9", True), ("6x30", False), ("6x10 _x12 6x9", False), ("_x24 0x9", False)]
)
def test_what_was_counted_before_the_first_scrape_fires_too_and_not_after_an_outage_of_prometheus(
    promtool, tmp_path, values, fires
):
    cases = []
    for name, series in [*COUNTERS.items(), ("RecordPublisherBadRecords", SKIPPED)]:
        made = case({}, {name: [alert_of(name, series)]} if fires else {})
        made["input_series"] = [{"series": series, "values": values}]
        cases.append(made)

    judged = judge(promtool, tmp_path, cases)

    assert judged.returncode == 0, judged.stdout + judged.stderr


def test_a_range_of_ports_is_down_only_if_no_port_answers(promtool, tmp_path):
    first, second = (f'up{{job="recordpublisher",port_range="shop",instance="shop:{port}"}}' for port in (9249, 9250))
    name = "RecordPublisherDown"
    down = alert_of(name, 'up{job="recordpublisher",port_range="shop"}')
    cases = [case({first: "1", second: "0"}, {}), case({first: "0", second: "0"}, {name: [down]})]

    judged = judge(promtool, tmp_path, cases)

    assert judged.returncode == 0, judged.stdout + judged.stderr


@pytest.mark.parametrize("series", HEALTHY)
def test_every_series_of_the_rules_is_on_the_page(series):
    assert series.startswith("up{") or f"# TYPE {series.partition('{')[0]} " in page()


def test_names_and_types_follow_the_conventions(promtool):
    checked = run(promtool, "check", "metrics", given=page())

    assert (checked.returncode, checked.stdout + checked.stderr) == (0, "")


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
    shown = expression.replace("$stream", ".*").replace("$job_name", ".*").replace("$__rate_interval", "1m")
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
        handling = MeasuredFetcher(1, sink=rp.MapSink(print).exported_metrics())
        source = FetchersOfProcess([fetcher, handling])
        async with open_exporters([exporter], source), fetcher, aiohttp.ClientSession() as session:
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


def test_every_expression_may_show_one_job():
    assert [each for each in EXPRESSIONS if each.count("recordpublisher_") != each.count('job_name=~"$job_name"')] == []


def test_every_alert_names_the_job():
    """Without those of a process that cannot be scraped, and so names none."""
    summaries = {
        name: rule["annotations"]["summary"] for name, rule in RULES.items() if "recordpublisher_" in rule["expr"]
    }

    assert [name for name, summary in summaries.items() if "$labels.job_name" not in summary] == []


def test_every_panel_has_an_expression_and_a_place_of_its_own():
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in DASHBOARD["panels"]]

    assert len(set(places)) == len(places)
    assert all(panel["targets"] for panel in DASHBOARD["panels"])
