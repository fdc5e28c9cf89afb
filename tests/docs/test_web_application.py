"""The page of web applications: its programs serve under real servers, against the embedded endpoint."""

import contextlib
import importlib.util
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections import Counter

import pytest

import recordpublisher as rp
from recordpublisher.local import serve_in_thread

from processes.command_line import ROOT, command, process_environment, sdk_environment
from processes.documentation_page import blocks

pytestmark = pytest.mark.slow
PAGE = ROOT / "docs/how-to/web-application.md"
SECONDS = 120
TRACED = """
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

trace.set_tracer_provider(TracerProvider())
from shop import app


@app.middleware("http")
async def span(request, call_next):
    with trace.get_tracer("shop").start_as_current_span("POST"):
        return await call_next(request)
"""


@pytest.fixture(autouse=True)
def _servers():
    for name in ("fastapi", "uvicorn", "flask", "gunicorn"):
        if importlib.util.find_spec(name) is None:
            (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(f"{name} is not installed")


@pytest.fixture
def served():
    with serve_in_thread(streams={"orders": 4}) as served:
        yield served


@pytest.fixture
def folder(tmp_path):
    for block in blocks(PAGE, {}):
        if block.file_name is not None:
            (tmp_path / block.file_name).write_text(block.text)
    with (tmp_path / "shop.properties").open("a") as file:
        file.write("flink.lease.duration = 10 s\n")
    (tmp_path / "traced.py").write_text(TRACED)
    return tmp_path


class Server:
    """A server in a process; what it prints is in a file."""

    def __init__(self, command, folder, served, **environment):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            self._port = taken.getsockname()[1]
        self.output = folder / f"{self._port}.txt"
        with self.output.open("w") as file:
            self.process = subprocess.Popen(
                [sys.executable, "-m", *(word.format(port=self._port) for word in command)],
                cwd=folder,
                env=process_environment(folder, **sdk_environment(served) | environment),
                stdout=file,
                stderr=subprocess.STDOUT,
            )

    def get(self, path):
        return self._answer(path)

    def post(self, path, body):
        return self._answer(path, body)

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        # uvicorn ends by the signal that it received, after the lifespan
        assert self.process.wait(SECONDS) in (0, -signal.SIGTERM), self.output.read_text()
        return self.output.read_text()

    def _answer(self, path, body=None):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._port}{path}", body, timeout=30) as response:
                return response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError as error:
            return 0, str(error)


@contextlib.contextmanager
def running(command, folder, served, ready="/metrics", **environment):
    server = Server(command, folder, served, **environment)
    try:
        wait_until(lambda: server.get(ready)[0] == 200, server)
        yield server
    finally:
        if server.process.poll() is None:
            server.process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                server.process.wait(30)
            server.process.kill()
        server.process.wait()


def wait_until(is_true, server):
    until = time.monotonic() + SECONDS
    while not is_true():
        assert time.monotonic() < until, server.output.read_text()
        assert server.process.poll() is None, server.output.read_text()
        time.sleep(0.1)


def post_orders(server, numbers):
    """Put orders; each again while the server does not accept it, as one of its workers that is not open yet."""
    for number in numbers:
        path, body = f"/orders/customer-{number % 13}", json.dumps({"order": number}).encode()
        answers = []
        wait_until(lambda: answers.append(server.post(path, body)) or answers[-1][0] != 503, server)  # noqa: B023 - called here
        assert answers[-1][0] == 202, answers[-1]


def handled(output):
    return [int(number) for number in re.findall(r"handled customer-\d+ (\d+)", output)]


def stored(served):
    given = {**served.properties(), "flink.stream.initpos": "TRIM_HORIZON"}
    return [json.loads(record.data) for record in rp.consume("orders", given, stop_at_tip=True)]


UVICORN = ["uvicorn", "shop:app", "--port", "{port}", "--log-config", "log.ini"]
GUNICORN = ["gunicorn", "counter:app", "--preload", "--workers", "2", "--threads", "8", "--bind", "127.0.0.1:{port}"]
GUNICORN += ["--log-config", "log.ini"]


def test_two_workers_handle_each_order_once_and_the_stop_loses_none(folder, served):
    with running([*UVICORN, "--workers", "2"], folder, served, "/readyz") as server:
        post_orders(server, range(100))
        wait_until(lambda: len(handled(server.output.read_text())) >= 100, server)
        post_orders(server, range(100, 130))
        output = server.stop()
    assert sorted(each["order"] for each in stored(served)) == [*range(130)]
    assert Counter(handled(output)).most_common(1)[0][1] == 1


def test_a_killed_server_resumes_where_it_stopped(folder, served):
    with running(UVICORN, folder, served, "/readyz") as server:
        post_orders(server, range(50))
        wait_until(lambda: 'outstanding_records{producer="orders"} 0\n' in server.get("/metrics")[1], server)
        wait_until(lambda: len(handled(server.output.read_text())) >= 10, server)
        server.process.kill()
        server.process.wait()
        before = handled(server.output.read_text())
    with running(UVICORN, folder, served, "/readyz") as server:
        post_orders(server, range(50, 60))
        wait_until(lambda: {*range(60)} <= {*before, *handled(server.output.read_text())}, server)
        server.stop()
    with running(UVICORN, folder, served, "/readyz") as server:
        post_orders(server, [60])
        wait_until(lambda: handled(server.output.read_text()) == [60], server)
        server.stop()


def test_at_the_limit_a_client_gets_503(folder, served):
    with (folder / "shop.properties").open("a") as file:
        file.write("flink.sink.kinesis.queue.limit = 5\n")
    with running(UVICORN, folder, served, "/readyz") as server:
        thaw = threading.Event()
        served._loop.call_soon_threadsafe(thaw.wait)  # the service responds to nothing
        answers = [server.post("/orders/customer-1", b'{"order":%d}' % number)[0] for number in range(6)]
        thaw.set()
        server.stop()
    assert answers == [202] * 5 + [503]
    assert sorted(each["order"] for each in stored(served)) == [*range(5)]


def test_a_consumer_that_ends_with_an_error_stops_the_server(folder, served):
    with running(UVICORN, folder, served, "/readyz") as server:
        served.call(served.endpoint.faults.fail_next, "GetRecords", "AccessDeniedException", 1000)
        assert server.process.wait(SECONDS) != 0, server.output.read_text()
    output = server.output.read_text()
    assert "consumer and sink have ended: " in output
    assert "Traceback" not in output


def test_a_bad_request_becomes_a_dead_letter_and_the_commands_of_the_page_work(folder, served):
    with running(UVICORN, folder, served, "/readyz") as server:
        assert server.post("/orders/customer-1", b"bad")[0] == 202
        post_orders(server, range(10))
        wait_until(lambda: len(handled(server.output.read_text())) == 10, server)
        wait_until(lambda: dead_letters(folder, served), server)
        for line in commands_of_the_page():
            done = command(*line, folder=folder, **sdk_environment(served))
            # the dead letter fails again
            assert done.returncode == (1 if "replay" in line else 0), (line, done.stdout, done.stderr)
            assert "PROBLEM" not in done.stdout
        assert dead_letters(folder, served)
        server.stop()
    assert Counter(handled(server.output.read_text())).most_common(1)[0][1] == 1


def dead_letters(folder, served):
    listed = command("dead-letters", "list", "shop:job", "--json", folder=folder, **sdk_environment(served))
    return "customer-1" in listed.stdout


def commands_of_the_page():
    found = [line.split()[2:] for line in PAGE.read_text().splitlines() if line.startswith("$ recordpublisher ")]
    assert len(found) == 5
    return found


def test_a_server_that_starts_in_an_outage_has_its_port_and_ends_at_once(folder, served):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        away = f"http://127.0.0.1:{taken.getsockname()[1]}"
    with running(UVICORN, folder, served, AWS_ENDPOINT_URL=away) as server:
        assert server.get("/readyz")[0] == 503
        wait_until(lambda: "it is not open: DescribeStreamSummary failed" in server.get("/readyz")[1], server)
        assert server.post("/orders/customer-1", b'{"order":1}')[0] == 503
        began = time.monotonic()
        output = server.stop()
        assert time.monotonic() - began < 10
    assert "Traceback" not in output


TWO_JOBS = """
import asyncio
import two_jobs

asked = []
two_jobs.signal.raise_signal = asked.append


async def serve():
    async with asyncio.timeout(60), two_jobs.lifespan(two_jobs.app):
        for fetcher in two_jobs.app.state.fetchers:
            await fetcher.wait_ready()
        await asyncio.sleep(1)
        print((await two_jobs.metrics()).body.decode())
    assert asked == []


asyncio.run(serve())
"""


def test_two_jobs_of_one_application_handle_each_order_once_over_a_restart(folder, served):
    outputs = []
    for _ in range(2):
        served.stream("orders").put(b"{}")
        program = [sys.executable, "-c", TWO_JOBS]
        environment = process_environment(**sdk_environment(served))
        ran = subprocess.run(
            program, cwd=folder, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False
        )
        assert ran.returncode == 0, ran.stderr
        outputs.append(ran.stdout)

    for output in outputs:
        handled = [line for line in output.splitlines() if line.startswith(("packed", "billed"))]
        assert sorted(handled) == ["billed key-0", "packed key-0"]
        for job in "packing", "billing":
            assert re.search(f'recordpublisher_worker_records_total{{job_name="{job}",process="."}} 1\n', output)


def test_the_pages_test_of_the_application_passes(folder):
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", "test_shop.py"]
    done = subprocess.run(
        command,
        cwd=folder,
        env=process_environment(folder),
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert "1 passed" in done.stdout, done.stdout + done.stderr


def test_the_trace_of_a_request_is_in_its_record(folder, served):
    with running(["uvicorn", "traced:app", "--port", "{port}"], folder, served, "/readyz") as server:
        post_orders(server, [1])
        server.stop()
    assert re.fullmatch("00-[0-9a-f]{32}-[0-9a-f]{16}-0[13]", stored(served)[0]["traceparent"])


def test_workers_of_gunicorn_put_each_order_once_and_the_stop_loses_none(folder, served):
    with (folder / "shop.properties").open("a") as file:
        file.write("RecordMaxBufferedTime = 20000\n")  # without the flush at exit they would not be sent yet
    with running(GUNICORN, folder, served) as server:
        post_orders(server, range(100))
        assert "recordpublisher_sink_outstanding_records" in server.get("/metrics")[1]
        server.stop()
    assert sorted(each["order"] for each in stored(served)) == [*range(100)]


@pytest.mark.parametrize("command", [UVICORN, GUNICORN[:2] + GUNICORN[3:]], ids=["FastAPI", "Flask"])
def test_an_outage_longer_than_orders_are_retried_needs_no_restart(folder, served, command):
    with (folder / "shop.properties").open("a") as file:
        file.write("flink.job.max.outage = 2s\n")
    with running(command, folder, served, "/readyz") as server:
        post_orders(server, [0])
        wait_until(lambda: len(stored(served)) == 1, server)
        served.call(served.endpoint.faults.fail_next, "PutRecords", "InternalFailure", 1000, status=500)
        post_orders(server, [1])
        wait_until(lambda: re.search(r"lost.*order\D+1\D", server.output.read_text()), server)
        served.call(served.endpoint.faults._calls.clear)
        post_orders(server, [2])
        wait_until(lambda: server.get("/readyz")[0] == 200, server)
        server.stop()
    assert sorted(each["order"] for each in stored(served)) == [0, 2]


@pytest.mark.parametrize("command", [UVICORN, GUNICORN[:2] + GUNICORN[3:]], ids=["FastAPI", "Flask"])
def test_a_stop_in_an_outage_reports_each_order_within_the_drain_timeout(folder, served, command):
    with (folder / "shop.properties").open("a") as file:
        file.write("flink.job.drain.timeout = 2s\n")
    with running(command, folder, served, "/readyz") as server:
        post_orders(server, [0])
        wait_until(lambda: len(stored(served)) == 1, server)
        served.call(served.endpoint.faults.fail_next, "PutRecords", "InternalFailure", 1000, status=500)
        post_orders(server, range(1, 6))
        began = time.monotonic()
        output = server.stop()
        assert time.monotonic() - began < 25
    lost = re.findall(r"lost.*order\D+(\d)\D", output)
    assert sorted(map(int, lost)) == [1, 2, 3, 4, 5], output
    assert "Traceback" not in output
