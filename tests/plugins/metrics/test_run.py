"""`recordpublisher run` exports metrics by property alone: one page for all workers."""

import re
import time
import urllib.error
import urllib.request

import pytest
from prometheus_client.parser import text_string_to_metric_families

from recordpublisher.local import serve_in_thread

from processes.job_files import end, job_file, start_job

COUNT = 40


def wait_for(found, job):
    deadline = time.monotonic() + 60
    while not (value := found()):
        assert job.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return value


def get(url):
    try:
        with urllib.request.urlopen(url, timeout=60) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def records_of(page):
    """The records that each worker has written."""
    return {
        sample.labels["process"]: sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
        if sample.name == "recordpublisher_worker_records_total"
    }


@pytest.fixture
def job(tmp_path):
    with serve_in_thread(streams={"orders": 4}) as served:
        for number in range(COUNT):
            served.call(served.endpoint.stream("orders").put, b"%d" % number, str(number))
        properties = {
            **served.endpoint.properties(),
            "flink.streams": "orders",
            "flink.stream.initpos": "TRIM_HORIZON",
            "flink.sink": "jsonl",
            "flink.sink.jsonl.path": tmp_path / "out",
            "flink.metrics.exporters": "prometheus",
            "flink.metrics.prometheus.address": "127.0.0.1:0",
        }
        started = start_job(job_file(tmp_path, properties), "--parallelism", "2")
        yield started
        started.kill()
        started.wait()


def test_one_page_has_the_metrics_of_every_worker(job, tmp_path):
    log = tmp_path / "job.err"
    url = wait_for(lambda: re.search(r"metrics are at (http://\S+)/metrics", log.read_text()), job)[1]

    wait_for(lambda: sum(records_of(get(f"{url}/metrics")[1]).values()) == COUNT, job)
    wait_for(lambda: get(f"{url}/readyz") == (200, "ok\n0.0 s behind\n"), job)
    assert records_of(get(f"{url}/metrics")[1]).keys() == {"0", "1"}
    assert get(f"{url}/healthz") == (200, "ok\n")
    assert end(job) == 0, log.read_text()
