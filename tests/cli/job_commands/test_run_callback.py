"""`recordpublisher run` and `doctor` as the installed command: where a job's function is found."""

import subprocess
import sys

import pytest

from recordpublisher.cli.job_commands.run import log_traceback

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


def test_an_error_of_user_code_is_logged_with_its_traceback_once(caplog):
    def broken():
        raise ZeroDivisionError("boom")

    with pytest.raises(ZeroDivisionError) as caught:
        broken()
    log_traceback(caught.value)
    caught.value.add_note("where it was logged")
    log_traceback(caught.value)
    (line,) = caplog.records
    assert line.exc_info[1] is caught.value
