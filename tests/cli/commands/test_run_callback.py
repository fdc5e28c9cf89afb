"""`recordpublisher run` and `doctor` as the installed command: where a job's function is found."""

import logging
import subprocess
import sys

import pytest

from recordpublisher.cli.commands.run import log_traceback
from recordpublisher.publishers.user_code import log_user_error

from processes.command_line import process_environment

JOB = """
flink.streams = orders
flink.sink = callback
flink.sink.callback.function = handlers:missing
aws.endpoint = http://127.0.0.1:1
"""


@pytest.mark.slow
@pytest.mark.parametrize(("command", "exit_code"), [("run", 2), ("doctor", 1)])
def test_a_function_of_the_current_folder_is_found_behind_installed_modules(tmp_path, command, exit_code):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/recordpublisher").write_text("from recordpublisher.__main__ import main\nmain()\n")
    project = tmp_path / "project"
    project.mkdir()
    (project / "job.properties").write_text(JOB)
    (project / "handlers.py").write_text("import sys\nsys.stderr.write(f'searched last: {sys.path[-1]}\\n')\n")

    done = subprocess.run(
        [sys.executable, str(tmp_path / "bin/recordpublisher"), command, "job.properties"],
        cwd=project,
        env=process_environment(),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert f"searched last: {project}" in done.stderr
    assert "module 'handlers' has no attribute 'missing'" in done.stderr + done.stdout
    assert done.returncode == exit_code


def error_of_the_user() -> ZeroDivisionError:
    def broken():
        raise ZeroDivisionError("boom")

    with pytest.raises(ZeroDivisionError) as caught:
        broken()
    return caught.value


def test_an_error_of_user_code_is_logged_with_its_traceback(caplog):
    error = error_of_the_user()
    error.add_note("what the user says of it")
    log_traceback(error)
    (line,) = caplog.records
    assert line.exc_info[1] is error


def test_an_error_that_was_logged_with_its_record_is_not_logged_again(caplog):
    error = error_of_the_user()
    log_user_error(logging.getLogger("recordpublisher"), error, "the sink failed", "orders/a", "1")
    log_traceback(error)
    assert [line.message for line in caplog.records] == ["the sink failed"]


ENDS_WITH_A_CALL = """
import asyncio, logging, sys, time
import recordpublisher.__main__ as command_line
from recordpublisher.plugins.sinks.callback import CallbackSink
from recordpublisher.plugins.sinks.map import MapSink

logging.basicConfig()
command_line.LEAVE_SECONDS = 0.2
record = type("Record", (), {})()

async def job():
    called = asyncio.Event()
    loop = asyncio.get_running_loop()

    def handle(record):
        loop.call_soon_threadsafe(called.set)
        time.sleep(30)

    if sys.argv[1] == "map":
        call = MapSink(handle)._handler.call
    else:
        call = CallbackSink(function=handle).write
    calling = asyncio.create_task(call(record))
    await called.wait()
    calling.cancel()

asyncio.run(job())
command_line.leave_threads_behind(5)
"""


@pytest.mark.parametrize("sink", ["map", "callback"])
def test_a_handler_that_hangs_in_a_thread_does_not_hold_the_end_of_a_job(sink):
    done = subprocess.run(
        [sys.executable, "-c", ENDS_WITH_A_CALL, sink],
        env=process_environment(),
        capture_output=True,
        text=True,
        timeout=25,
        check=False,
    )

    assert "calls of user code are still running 0.2 s after the command has finished: the process exits" in done.stderr
    assert done.returncode == 5
