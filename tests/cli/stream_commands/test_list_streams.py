"""`recordpublisher list`. What it prints is tested by its example, in `tests/cli/test_examples.py`."""

import signal
import socket

from processes.command_line import process_environment
from processes.forked.command import PipedCommand


def test_an_interrupted_list_prints_no_empty_table():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(60)
        endpoint = f"http://127.0.0.1:{silent.getsockname()[1]}"
        keys = {"AWS_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret"}
        with PipedCommand("list", "--endpoint", endpoint, environment=process_environment(**keys)) as process:
            connection, _ = silent.accept()
            with connection:
                process.send_signal(signal.SIGINT)
                assert process.communicate(timeout=60) == ("", "")
    assert process.returncode == 130
