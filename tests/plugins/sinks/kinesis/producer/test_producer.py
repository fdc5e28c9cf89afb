"""rp.Producer: the Kinesis sink for programs without asyncio."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from datetime import timedelta

import pytest

import recordpublisher as rp
from recordpublisher.local import serve_in_thread

from ..endpoint_records import UNPACED, assert_key_order, payloads, read_all
from processes.command_line import process_environment


@pytest.fixture
def served():
    with serve_in_thread(streams={"out": 2}) as served:
        yield served


@pytest.fixture
def producer(served):
    with rp.Producer("out", properties(served)) as producer:
        yield producer


def properties(served, **more):
    return {**served.properties(), **UNPACED, **more}


def arrived(served):
    return asyncio.run(read_all(served.endpoint))


def wait_until(is_true):
    until = time.monotonic() + 60
    while not is_true():
        assert time.monotonic() < until
        time.sleep(0.01)


@contextlib.contextmanager
def frozen(served):
    """The endpoint responds to nothing in the block."""
    thaw = threading.Event()
    served._loop.call_soon_threadsafe(thaw.wait)
    try:
        yield
    finally:
        thaw.set()


def test_records_of_several_threads_arrive_in_the_order_of_their_keys(served):
    def put(key):
        for number in range(100):
            producer.put(str(number).encode(), key)

    with rp.Producer("out", properties(served), ordering="PER_KEY") as producer:
        threads = [threading.Thread(target=put, args=(f"key-{key}",)) for key in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    read = arrived(served)
    assert Counter(record.partition_key for record in read) == {f"key-{key}": 100 for key in range(4)}
    assert_key_order(read)


def test_the_end_of_the_block_ends_the_thread(producer):
    assert "rp.Producer" in str(threading.enumerate())
    producer.close()
    assert "rp.Producer" not in str(threading.enumerate())


def test_a_flush_returns_when_all_is_acknowledged(served, producer):
    for number in range(10):
        producer.put(str(number).encode(), "key")
    producer.flush()
    assert (producer.metrics()["numRecordsOut"], producer.metrics()["outstandingRecordsCount"]) == (10, 0)


def test_at_the_limit_a_put_waits_until_its_timeout_and_its_record_is_not_accepted(served):
    with rp.Producer("out", properties(served), queue_limit=1) as producer:
        with frozen(served):
            producer.put(b"1", "key")
            with pytest.raises(
                TimeoutError, match=r"not accepted in 0.05 s: records not acknowledged: 1 \(\d+ bytes\)"
            ):
                producer.put(b"2", "key", timeout=0.05)
        producer.put(b"3", "key")
    assert payloads(arrived(served)) == [1, 3]


@pytest.mark.parametrize("timeout", ["2s", 2, timedelta(seconds=2)])
def test_a_timeout_is_seconds_a_text_or_a_timedelta(served, timeout):
    with rp.Producer("out", properties(served)) as producer:
        producer.put(b"1", "key", timeout=timeout)
        producer.flush(timeout=timeout)
    assert payloads(arrived(served)) == [1]


@pytest.mark.parametrize("timeout", ["2", True, float("nan"), 5_000])
def test_a_timeout_that_is_not_a_duration_is_refused_with_a_sentence(served, timeout):
    with rp.Producer("out", properties(served)) as producer:
        for call in (lambda: producer.put(b"1", "key", timeout=timeout), lambda: producer.flush(timeout=timeout)):
            with pytest.raises(
                rp.ConfigurationError, match=r"Valid: seconds, a text such as 15m|write '5000s' or '5000ms'"
            ):
                call()


def test_a_timeout_of_zero_accepts_what_need_not_wait(served):
    with rp.Producer("out", properties(served), queue_limit=1) as producer, frozen(served):
        producer.put(b"1", "key", timeout=0)
        with pytest.raises(TimeoutError):
            producer.put(b"2", "key", timeout=0)


def test_a_flush_ends_at_its_timeout_and_its_records_arrive_later(served, producer):
    with frozen(served):
        producer.put(b"1", "key")
        with pytest.raises(TimeoutError, match="flush did not end"):
            producer.flush(timeout=0.05)
    producer.flush()
    assert payloads(arrived(served)) == [1]


def test_an_interrupted_put_leaves_a_usable_producer(served):
    with rp.Producer("out", properties(served), queue_limit=1) as producer:
        with frozen(served):
            producer.put(b"1", "key")
            me = threading.get_ident()
            threading.Timer(0.2, signal.pthread_kill, (me, signal.SIGINT)).start()
            with pytest.raises(KeyboardInterrupt):
                producer.put(b"2", "key")
        producer.put(b"3", "key")
    assert payloads(arrived(served)) == [1, 3]


def test_an_invalid_record_is_an_error_of_its_put_only(served, producer):
    with pytest.raises(rp.InvalidRecordError, match="partition key"):
        producer.put(b"1", "")
    with pytest.raises(TypeError, match="must be bytes"):
        producer.put("text", "key")
    producer.put(b"2", "key")
    producer.flush()
    assert payloads(arrived(served)) == [2]


def test_an_error_that_ends_the_sink_is_raised_by_the_calls_after_it(served):
    producer = rp.Producer("out", properties(served))
    producer.put(b"1", "key")
    producer.flush()
    served.call(served.endpoint.faults.fail_next, "PutRecords", "AccessDeniedException")
    producer.put(b"2", "key")
    for call in (producer.flush, lambda: producer.put(b"3", "key")):
        with pytest.raises(rp.FatalKinesisError):
            call()
    assert "AccessDenied" in producer.reasons_not_ready()[0]
    producer.close()


def test_a_stream_that_is_missing_is_an_error_until_it_is_created(served):
    producer = rp.Producer("later", properties(served))
    with pytest.raises(rp.StreamNotFoundError):
        producer.put(b"1", "key")
    served.create_stream("later")
    producer.put(b"2", "key")
    producer.close()
    assert payloads(asyncio.run(read_all(served.endpoint, "later"))) == [2]


def test_a_producer_whose_opening_has_failed_is_not_ready_and_each_question_lets_it_try_again(served):
    """No put may come while the process is not ready, so the puts alone would never open it."""
    producer = rp.Producer("later", properties(served))
    assert producer.reasons_not_ready() == []
    with pytest.raises(rp.StreamNotFoundError):
        producer.put(b"1", "key")
    assert "it is not open: StreamNotFoundError: stream 'later'" in producer.reasons_not_ready()[0]
    served.create_stream("later")
    wait_until(lambda: producer.reasons_not_ready() == [])
    producer.close()
    assert producer.reasons_not_ready() == ["KinesisSink, stream later: it is closed"]


def lose_stream(served, producer):
    """Delete the producer's stream, and put a record that is lost by it."""
    producer.put(b"1", "key")
    producer.flush()
    served.call(served.endpoint.account.streams().pop, "later")
    producer.put(b"2", "key")
    wait_until(lambda: "does not exist" in "".join(producer.reasons_not_ready()))


def test_a_producer_whose_stream_was_deleted_opens_again_when_the_stream_exists_again(served):
    served.create_stream("later")
    lost = []
    with rp.Producer("later", properties(served), on_failure=lost.append) as producer:
        lose_stream(served, producer)
        with pytest.raises(rp.StreamNotFoundError):
            producer.put(b"3", "key")
        served.create_stream("later")
        wait_until(lambda: producer.reasons_not_ready() == [])
        producer.put(b"4", "key")
        producer.flush()
        counts = producer.metrics()
    assert [record.data for record in lost] == [b"2"]
    assert payloads(asyncio.run(read_all(served.endpoint, "later"))) == [4]
    assert (counts["numRecordsOut"], counts["numRecordsOutErrors"]) == (2, 1)


@pytest.mark.parametrize("call", ["put", "flush", "close"])
def test_records_that_were_lost_with_a_stream_are_an_error_of_one_call_even_after_it_was_opened_again(served, call):
    served.create_stream("later")
    producer = rp.Producer("later", properties(served))
    lose_stream(served, producer)
    served.create_stream("later")
    wait_until(lambda: producer.reasons_not_ready() == [])
    with pytest.raises(rp.StreamNotFoundError, match=r"not acknowledged: 1 record$"):
        producer.put(b"3", "key") if call == "put" else getattr(producer, call)()
    producer.close()


def test_while_a_producer_tries_to_open_again_the_cause_stays(served):
    producer = rp.Producer("later", properties(served))
    with pytest.raises(rp.StreamNotFoundError):
        producer.put(b"1", "key")
    with frozen(served):
        opening = producer._thread._opening
        producer.reasons_not_ready()
        wait_until(lambda: producer._thread._opening is not opening)
        assert "stream 'later'" in producer.reasons_not_ready()[0]
    producer.close()


def test_a_producer_that_is_not_open_names_the_cause_where_it_waits(served):
    producer = rp.Producer("out", properties(served) | {"aws.endpoint": "http://127.0.0.1:9"})
    with pytest.raises(
        TimeoutError, match=r"not accepted in 1 s: records not acknowledged: 0 .* it is not open: .*127\.0\.0\.1:9"
    ):
        producer.put(b"1", "key", timeout=1)
    assert "it is not open: " in producer.reasons_not_ready()[0]
    producer.close()


def test_at_the_limit_a_put_that_times_out_names_the_cause(served):
    with rp.Producer("out", properties(served), queue_limit=1) as producer:
        served.call(served.endpoint.faults.fail_next, "PutRecords", "InternalFailure", 1000, status=500)
        producer.put(b"1", "key")
        wait_until(lambda: producer.metrics()["failingMs"])
        for call in (lambda: producer.put(b"2", "key", timeout=0.05), lambda: producer.flush(timeout=0.05)):
            with pytest.raises(TimeoutError, match=r"puts have failed for \d+ m?s: .*InternalFailure"):
                call()
        served.call(served.endpoint.faults._calls.clear)


def test_a_producer_works_again_after_an_outage_longer_than_its_records_are_retried(served):
    with rp.Producer("out", properties(served), max_outage="300ms") as producer:
        producer.put(b"1", "key")
        producer.flush()
        served.call(served.endpoint.faults.fail_next, "PutRecords", "InternalFailure", 1000, status=500)
        producer.put(b"2", "key")
        with pytest.raises(rp.SinkError, match=r"Not put since the last error: 1 record$"):
            producer.flush()
        served.call(served.endpoint.faults._calls.clear)
        producer.put(b"3", "key")
    assert payloads(arrived(served)) == [1, 3]


def test_an_opening_outlives_the_put_that_began_it(served):
    producer = rp.Producer("out", properties(served))
    with frozen(served), pytest.raises(TimeoutError):
        producer.put(b"1", "key", timeout=0.05)
    opening = producer._thread._opening
    producer.put(b"2", "key")
    producer.close()
    assert producer._thread._opening is opening
    assert payloads(arrived(served)) == [2]


def test_a_producer_that_never_put_ends_at_once(served):
    producer = rp.Producer("out", properties(served))
    producer.flush()
    with frozen(served), pytest.raises(TimeoutError):
        producer.put(b"1", "key", timeout=0.05)
    producer.close()
    assert arrived(served) == []


def test_a_closed_producer_says_so(served, producer):
    producer.close()
    producer.close()
    for call in (producer.flush, lambda: producer.put(b"1", "key"), producer.__enter__):
        with pytest.raises(rp.SinkError, match="is closed"):
            call()


def test_puts_that_wait_when_the_producer_is_closed_are_told_so(served):
    def put():
        try:
            producer.put(b"2", "key")
        except BaseException as error:
            errors.append(str(error))

    errors = []
    with rp.Producer("out", properties(served), queue_limit=1) as producer, frozen(served):
        producer.put(b"1", "key")
        threads = [threading.Thread(target=put) for _ in range(20)]
        for thread in threads:
            thread.start()
        while producer.metrics()["waitingWrites"] < 20:
            pass
    for thread in threads:
        thread.join()
    assert len(errors) + len(arrived(served)) == 21
    assert all("is closed" in error for error in errors)


def test_a_wrong_setting_is_an_error_of_the_constructor(served):
    with pytest.raises(rp.ConfigurationError, match="ordering"):
        rp.Producer("out", properties(served), ordering="SORTED")


def test_a_callback_that_puts_into_its_own_producer_is_told_so_and_does_not_hang(served, caplog):
    def put_again(failed):
        producer.put(failed.data, "another")

    with rp.Producer("out", properties(served), fail_on_error=False, on_failure=put_again) as producer:
        producer.put(b"1", "")
        producer.put(b"2", "key")
    assert "cannot wait for itself" in caplog.text
    assert payloads(arrived(served)) == [2]


def test_a_callback_that_closes_its_own_producer_is_told_so_and_the_records_arrive(served):
    def close(failed):
        with pytest.raises(rp.RecordPublisherError, match="cannot wait for itself"):
            producer.close()

    with rp.Producer("out", properties(served), fail_on_error=False, on_failure=close) as producer:
        with frozen(served):
            producer.put(b"1", "key")
            producer.put(b"2", "")
        producer.put(b"3", "key")
    assert payloads(arrived(served)) == [1, 3]


def test_a_handler_of_a_signal_may_close_what_the_main_thread_closes(served):
    def close(number, frame):
        threading.Thread(target=thaw.set).start()
        producer.close()

    thaw = threading.Event()
    before = signal.signal(signal.SIGUSR1, close)
    try:
        producer = rp.Producer("out", properties(served))
        producer.put(b"1", "key")
        producer.flush()
        served._loop.call_soon_threadsafe(thaw.wait)
        producer.put(b"2", "key")
        me = threading.get_ident()
        threading.Timer(0.2, signal.pthread_kill, (me, signal.SIGUSR1)).start()
        producer.close()
    finally:
        thaw.set()
        signal.signal(signal.SIGUSR1, before)
    assert payloads(arrived(served)) == [1, 2]


def test_a_timeout_of_the_network_is_raised_as_it_is(served, producer, monkeypatch):
    async def put(*_, **__):
        raise TimeoutError("the credentials")

    monkeypatch.setattr(producer._thread.sink, "put", put)
    with pytest.raises(TimeoutError, match="the credentials"):
        producer.put(b"1", "key")


def test_a_block_that_could_not_be_entered_leaves_no_thread(served):
    before = set(threading.enumerate())
    producer = rp.Producer("later", properties(served))
    for _ in range(2):
        with pytest.raises(rp.StreamNotFoundError), producer:
            pass
    assert set(threading.enumerate()) == before
    served.create_stream("later")
    with producer:
        producer.put(b"1", "key")
    assert payloads(asyncio.run(read_all(served.endpoint, "later"))) == [1]


# --- processes ------------------------------------------------------------------------------------------------------------------------

BEGIN = """
import json, os, signal, sys, threading, time
import recordpublisher as rp
producer = rp.Producer("out", json.loads(sys.argv[1]))
"""
EXITS = {
    "the end of the program": "for number in range(300): producer.put(b'%d' % number, str(number))",
    "a thread that outlives the main one": """
def put():
    for number in range(300):
        producer.put(b'%d' % number, str(number))
        if number == 10:
            threading.main_thread().join()
            time.sleep(0.5)
threading.Thread(target=put).start()
""",
    "SIGTERM with a handler that exits": """
signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(0))
for number in range(300): producer.put(b'%d' % number, str(number))
os.kill(os.getpid(), signal.SIGTERM)
time.sleep(30)
""",
    "a process of multiprocessing": """
import multiprocessing
def put():
    for number in range(300): producer.put(b'%d' % number, str(number))
process = multiprocessing.get_context("fork").Process(target=put)
process.start()
process.join()
""",
    "a function of atexit": """
import atexit
@atexit.register
def put():
    for number in range(300): producer.put(b'%d' % number, str(number))
""",
    "a function of atexit that runs after the producers were closed": """
import atexit
@atexit.register
def put():
    for number in range(1, 300): producer.put(b'%d' % number, str(number))
rp.Producer("out", json.loads(sys.argv[1])).put(b"0", "key")
""",
}


def run_program(text, served, **more):
    given = json.dumps(properties(served, **more))
    return subprocess.run(
        [
            sys.executable,
            "-W",
            "ignore::DeprecationWarning",
            "-c",
            BEGIN + text,
            given,
        ],  # of os.fork, since Python 3.12
        env=process_environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.slow
@pytest.mark.parametrize("text", EXITS.values(), ids=EXITS)
def test_an_exit_of_the_interpreter_flushes(served, text):
    done = run_program(text, served, RecordMaxBufferedTime=20_000)
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(payloads(arrived(served))) == [*range(300)]


def test_an_exit_that_waits_says_so(served):
    program = "producer.put(b'1', 'key'); producer.flush(); input(); producer.put(b'2', 'key')"
    words = [sys.executable, "-c", BEGIN + program, json.dumps(properties(served))]
    pipes = dict.fromkeys(("stdin", "stderr"), subprocess.PIPE)
    with subprocess.Popen(words, env=process_environment(), text=True, **pipes) as process:
        while not arrived(served):
            pass
        with frozen(served):
            process.stdin.write("\n")
            process.stdin.flush()
            assert (
                "the exit of the process waits until all records are put: records not acknowledged: 1 ("
                in process.stderr.readline()
            )
        assert process.wait(60) == 0
    assert payloads(arrived(served)) == [1, 2]


def test_an_exit_tells_what_was_not_put(served):
    served.call(served.endpoint.faults.fail_next, "PutRecords", "AccessDeniedException", 100)
    done = run_program("for number in range(3): producer.put(b'%d' % number, str(number))", served)
    exit_line, sink_line = sorted(done.stderr.splitlines())  # of two threads
    assert "the Kinesis sink of out ends, and gives up 3 records: PutRecords failed with AccessDenied" in sink_line
    assert "at exit, the producer of out failed: FatalKinesisError: PutRecords failed with AccessDenied" in exit_line
    assert exit_line.endswith("The sink ends; accepted and not acknowledged: 3 records")


def test_on_failure_gets_what_is_left_after_an_error_that_ends_the_sink(served):
    served.call(served.endpoint.faults.fail_next, "PutRecords", "AccessDeniedException", 100)
    failed = []
    producer = rp.Producer("out", properties(served, RecordMaxBufferedTime=20_000), on_failure=failed.append)
    for number in range(3):
        producer.put(b"%d" % number, str(number))
    with pytest.raises(rp.KinesisError, match=r"not acknowledged: 3 records$"):
        producer.close()
    assert sorted(record.data for record in failed) == [b"0", b"1", b"2"]
    assert producer.metrics()["numRecordsOutErrors"] == 3


ENDED = """
def leave(failed):
    raise KeyboardInterrupt

producer = rp.Producer("out", json.loads(sys.argv[1]), fail_on_error=False, on_failure=leave)
try:
    producer.put(b"1", "")
except (KeyboardInterrupt, rp.RecordPublisherError):
    producer._thread.loop._thread.join()
try:
    producer.close()
except rp.SinkError as error:
    print(error)
producer.close()
"""


def test_a_close_after_the_thread_has_ended_says_so_once(served):
    done = run_program(ENDED, served)
    assert done.stdout == "the producer's thread ended before `close` was called; records not acknowledged: 0\n"


FORK = """
for number in range(100): producer.put(b'%d' % number, str(number))
child = os.fork()
first = 100 if child else 200
for number in range(first, first + 100): producer.put(b'%d' % number, str(number))
if not child:
    sys.exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
for number in range(300, 400): producer.put(b'%d' % number, str(number))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="os.fork is missing")
@pytest.mark.parametrize("linger", [20_000, 0])
def test_a_forked_child_sends_its_own_records_only(served, linger):
    done = run_program(FORK, served, RecordMaxBufferedTime=linger)
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(payloads(arrived(served))) == [*range(400)]


def test_a_producer_gives_up_a_service_after_its_longest_outage(monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    away = {"aws.region": "eu-west-1", "aws.endpoint": "http://127.0.0.1:9"}
    with (
        pytest.raises(rp.RecordPublisherError, match=r"flink.job.max.outage decides"),
        rp.Producer("out", away, max_outage="300ms"),
    ):
        pass


EXIT_IN_AN_OUTAGE = """
import json, sys
import recordpublisher as rp

producer = rp.Producer("out", json.loads(sys.argv[1]), on_failure=lambda failed: print("lost", failed.data.decode()))
for number in range(3):
    producer.put(str(number).encode(), "key")
print("exits")
"""


def test_an_exit_in_an_outage_ends_after_the_drain_timeout_and_reports_each_record(served, tmp_path):
    served.call(served.endpoint.faults.fail_next, "PutRecords", "InternalFailure", 1000, status=500)
    given = json.dumps(properties(served, **{"flink.job.drain.timeout": "1s"}))
    began = time.monotonic()
    ended = subprocess.run(
        [sys.executable, "-c", EXIT_IN_AN_OUTAGE, given],
        env=process_environment(tmp_path),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.stdout.splitlines() == ["exits", "lost 0", "lost 1", "lost 2"], ended.stderr
    assert time.monotonic() - began < 30
    assert "gives up 3 records: no record was acknowledged for 1 s (flink.job.drain.timeout)" in ended.stderr


@pytest.mark.filterwarnings("default")
def test_a_call_in_an_event_loop_warns_once_with_the_callers_line(served, recwarn):
    async def handler():
        with rp.Producer("out", properties(served)) as producer:
            for number in range(3):
                producer.put(str(number).encode(), "key")
            producer.flush()
            await asyncio.to_thread(producer.put, b"3", "key")

    asyncio.run(handler())
    (warning,) = recwarn.list
    assert (warning.category, warning.filename) == (RuntimeWarning, __file__)
    assert "use `async with rp.KinesisSink(...) as sink` and `await sink.put(...)`" in str(warning.message)
    assert payloads(arrived(served)) == [0, 1, 2, 3]


def test_a_thread_without_an_event_loop_is_not_warned(served, recwarn):
    async def handler():
        with rp.Producer("out", properties(served)) as producer:  # as in a lifespan of FastAPI
            await asyncio.to_thread(producer.put, b"1", "key")
            await asyncio.to_thread(producer.flush)

    asyncio.run(handler())
    assert recwarn.list == []
