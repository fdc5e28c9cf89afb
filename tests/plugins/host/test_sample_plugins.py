"""Third-party publishers of shards and of queues, installed with pip and chosen by name (P5)."""

import ast
import asyncio
import json
import os
import shutil
import subprocess
import sys
from contextlib import asynccontextmanager
from pathlib import Path

import boto3
import pytest

import recordpublisher as rp
from recordpublisher.plugins.host.plugin_loading import load_registry
from recordpublisher.plugins.host.registry import NameClaim, NameOwner
from recordpublisher.publishers.properties import declaration
from recordpublisher.testing import QueueSourceCase, QueueSourceContract

from processes.command_line import ROOT, command, process_environment
from servers.moto_server import serve_moto

pytestmark = pytest.mark.slow
SAMPLE = ROOT / "examples" / "sample_publisher"


@pytest.fixture(scope="session")
def site(tmp_path_factory) -> Path:
    """A folder into which the sample package is installed; the build gets a copy, since it writes into its source folder."""
    sources = tmp_path_factory.mktemp("sources") / "sample"
    shutil.copytree(SAMPLE, sources)
    target = tmp_path_factory.mktemp("site")
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check"]
    subprocess.run(
        [sys.executable, "-m", "pip", "install", *options, "--target", target, sources],
        check=True,
        env={**os.environ, "PIP_NO_INPUT": "1"},
    )
    return target


def test_the_installed_plugin_is_listed(site):
    done = command("plugins", path=site)

    assert "lines, of sample-publisher 1.2.3: loaded" in done.stdout
    assert "LINES (sample-publisher)" in done.stdout


def test_a_blocked_plugin_claims_nothing(site):
    done = command("plugins", path=site, RECORDPUBLISHER_BLOCK_PLUGINS="sample_publisher")

    assert "lines, of sample-publisher 1.2.3: blocked" in done.stdout
    assert "LINES" not in done.stdout


def test_its_properties_are_listed(site):
    assert "flink.lines.folder" in command("properties", path=site).stdout


@pytest.fixture
def folder(tmp_path) -> Path:
    """A stream of two shards."""
    (tmp_path / "orders").mkdir()
    (tmp_path / "orders" / "a.txt").write_text("one\ntwo\nthree\n")
    (tmp_path / "orders" / "b.txt").write_text("four\n")
    return tmp_path


READ_ALL = """
import sys, recordpublisher as rp
properties = {"flink.stream.recordpublisher": "lines", "flink.lines.folder": sys.argv[1], "flink.lines.batch": 2}
records = rp.consume(["orders"], properties, stop_at_tip=True)
print(sorted((record.shard_id, record.sequence_number, record.data) for record in records))
"""


def test_consume_reads_through_it(site, folder):
    script = [sys.executable, "-c", READ_ALL, str(folder)]
    environment = process_environment(site, PYTHONWARNINGS="error")
    done = subprocess.run(script, env=environment, capture_output=True, text=True, timeout=200, check=False)

    assert done.stderr == ""
    lines = [("a.txt", "1", b"one"), ("a.txt", "2", b"two"), ("a.txt", "3", b"three"), ("b.txt", "1", b"four")]
    assert ast.literal_eval(done.stdout) == lines


def test_a_job_that_reads_files_is_told_nothing_of_a_service_that_may_be_away(site, folder):
    job = folder / "job.properties"
    job.write_text(
        f"flink.streams=orders\nflink.stream.recordpublisher=LINES\nflink.lines.folder={folder}\nflink.sink=memory\n"
    )
    done = command("run", str(job), "--stop-at-tip", "--max-records", "4", path=site, folder=folder)

    assert done.returncode == 0, done.stderr
    assert "the job ended: MAX_RECORDS, 4 records" in done.stderr
    assert "service" not in done.stderr


READ_SLOWLY = """
import time, sample_publisher.lines as lines
read = lines.LinesPublisher._read
def slowly(self):
    time.sleep(0.3 if self._done else 0)
    return read(self)
lines.LinesPublisher._read = slowly
"""


def test_stop_at_tip_waits_for_a_slow_disk(site, folder):
    script = [sys.executable, "-c", READ_SLOWLY + READ_ALL, str(folder)]
    done = subprocess.run(
        script, env=process_environment(site), capture_output=True, text=True, timeout=200, check=False
    )

    assert len(ast.literal_eval(done.stdout)) == 4


def tail(site: Path, folder: Path, *arguments: str, stream: str = "orders") -> subprocess.CompletedProcess[str]:
    pairs = ("-p", "flink.stream.recordpublisher=LINES", "-p", f"flink.lines.folder={folder}", "--no-follow")
    return command("tail", stream, *pairs, *arguments, path=site)


def test_tail_prints_its_records(site, folder):
    done = tail(site, folder)

    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(json.loads(line)["data"] for line in done.stdout.splitlines()) == ["four", "one", "three", "two"]


def test_tail_ends_at_the_limit(site, folder):
    done = tail(site, folder, "--limit", "2")

    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) == 2


def test_a_stream_that_it_does_not_have_is_one_line(site, folder):
    done = tail(site, folder, stream="nothing")

    told = "recordpublisher: stream 'nothing' does not exist; `LinesFactory.discover` for nothing failed\n"
    assert (done.returncode, done.stderr) == (1, told)


def test_an_unknown_publisher_lists_the_installed_ones(site):
    done = command("tail", "orders", "-p", "flink.stream.recordpublisher=KAFKA", path=site)

    assert done.returncode == 2
    assert done.stderr == (
        "recordpublisher: property 'flink.stream.recordpublisher' is 'KAFKA': "
        "no publisher of that name is installed. Valid: ARCHIVE, DYNAMODB_STREAMS, EFO, LINES, POLLING, QUEUE\n"
    )


MESSAGES = [b"%d" % number for number in range(40)]


@pytest.fixture(scope="module")
def url():
    with serve_moto() as served:
        yield served


@pytest.fixture
def sqs(url, monkeypatch):
    monkeypatch.setattr(declaration, "_declared", dict(declaration._declared))  # the plugin declares its own in it
    monkeypatch.syspath_prepend(str(ROOT / "examples" / "sample_queue"))
    for name, value in {"ACCESS_KEY_ID": "a", "SECRET_ACCESS_KEY": "s", "DEFAULT_REGION": "us-east-1"}.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    client = boto3.client("sqs", endpoint_url=url)
    yield client
    client.close()
    for name in [name for name in sys.modules if name.startswith("sample_queue")]:
        del sys.modules[name]


@pytest.fixture
def queue(sqs):
    made = sqs.create_queue(QueueName="work")["QueueUrl"]
    for start in range(0, len(MESSAGES), 10):
        entries = [{"Id": str(n), "MessageBody": str(n)} for n in range(start, start + 10)]
        sqs.send_message_batch(QueueUrl=made, Entries=entries)
    yield made
    sqs.delete_queue(QueueUrl=made)


def left(sqs, queue):
    """How many messages are visible, and how many are in flight."""
    told = sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=["All"])["Attributes"]
    return int(told["ApproximateNumberOfMessages"]), int(told["ApproximateNumberOfMessagesNotVisible"])


def job(url, sink):
    from sample_queue.sqs import SqsQueue

    registry = load_registry()
    registry.publishers.claim(NameClaim("SQS", SqsQueue, NameOwner("sample-queue", "1.0.0")))
    given = {"flink.stream.recordpublisher": "SQS", "flink.sqs.endpoint": url}
    return rp.DataFetcher("work", given, sink=sink, registry=registry)


async def test_messages_are_written_and_then_acknowledged(url, sqs, queue):
    sink = rp.MemorySink()
    async with job(url, sink) as fetcher:
        await fetcher.run_bounded(stop_at_tip=True, max_time=60)

    assert sorted(record.data for record in sink.records) == sorted(MESSAGES)
    assert left(sqs, queue) == (0, 0)


async def test_a_slow_message_is_the_only_one_that_is_not_acknowledged(url, sqs, queue):
    seen = asyncio.Event()

    async def handler(record):
        if record.data == b"7":
            for _ in range(200):
                if await asyncio.to_thread(left, sqs, queue) == (0, 1):
                    seen.set()
                    return
                await asyncio.sleep(0.05)

    async with job(url, rp.MapSink(handler, ordering="NONE")) as fetcher:
        await fetcher.run_bounded(stop_at_tip=True, max_time=60)

    assert seen.is_set()
    assert left(sqs, queue) == (0, 0)


async def test_a_failing_job_releases_what_it_holds(url, sqs, queue):
    def handler(record):
        raise ValueError("bad")

    with pytest.raises(rp.SinkError):
        async with job(url, rp.MapSink(handler, retries=0, ordering="NONE", concurrency=2)) as fetcher:
            await fetcher.run_bounded(max_time=60)

    assert left(sqs, queue) == (40, 0)


class TestTheContract(QueueSourceContract):
    @pytest.fixture(autouse=True)
    def _queue(self, url, sqs, queue):
        self.put = lambda payload: sqs.send_message(QueueUrl=queue, MessageBody=payload.decode())
        self.given = rp.Properties({"flink.sqs.endpoint": url, "flink.sqs.visibility.timeout": 5})

    @asynccontextmanager
    async def open_case(self):
        from sample_queue.sqs import SqsQueue

        def start():
            source = SqsQueue(self.given)
            source.prepare(["work"])
            return source

        # The server of these tests accepts every receipt of a message.
        yield QueueSourceCase(start, MESSAGES, self.put, refuses_old_receipts=False)
