"""`recordpublisher tracker` as a process: started, suspended, stopped."""

import asyncio
import signal
import socket
from contextlib import contextmanager

import pytest

from processes.command_line import command, process_environment
from processes.forked.command import PipedCommand
from processes.tracker_clients import TOKEN, report, running_job, wait_until
from servers.certificates import CertificateAuthority


@contextmanager
def a_tracker(*arguments, **environment):
    """Start the command. Yields its process and address once it listens."""
    with PipedCommand("tracker", "--port", "0", *arguments, environment=process_environment(**environment)) as process:
        try:
            yield process, process.stderr.readline().split()[-1]
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_it_serves_until_it_is_stopped_and_never_prints_the_token(number):
    with a_tracker("--token", TOKEN) as (process, address):
        async with running_job(address, 1) as job:
            one = await job.start(0)
            await wait_until(lambda: one.current() == 5, (one, 5))
            process.send_signal(number)
            assert process.wait(timeout=60) == 0
            output = process.stdout.read() + process.stderr.read()

    assert output == ""


async def test_a_suspended_tracker_stops_and_excludes_no_subtask():  # W6, W10
    with a_tracker("--token", TOKEN) as (process, address):
        async with running_job(address, 2, **{"flink.watermark.tracker.timeout": 1_000}) as job:
            a, b = await job.start_all()
            await wait_until(lambda: a.current() == b.current() == 5, (a, 9), (b, 5))
            process.send_signal(signal.SIGSTOP)
            for _ in range(30):
                assert report(a, 9) == 5, "the last value stays"
                report(b, 6)
                await asyncio.sleep(0.1)
            assert not a.is_reachable
            process.send_signal(signal.SIGCONT)
            await wait_until(lambda: a.current() == b.current() == 8, (a, 9), (b, 8))

            assert a.timed_out_subtasks() == b.timed_out_subtasks() == ()


async def test_a_restarted_tracker_continues_from_the_subtasks_reports():  # W6
    with a_tracker("--token", TOKEN) as (process, address):
        async with running_job(address, 2) as job:
            a, b = await job.start_all()
            await wait_until(lambda: a.current() == b.current() == 50, (a, 60), (b, 50))
            process.kill()
            process.wait()
            port = address.rsplit(":", 1)[1]
            with a_tracker("--token", TOKEN, "--port", port):
                seen = []
                await wait_until(lambda: seen.append(a.current()) or a.current() == 70, (a, 70), (b, 80))

            assert seen == sorted(seen)


def test_a_port_that_is_taken_names_the_option():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = command("tracker", "--token", "t", "--port", str(port))

    assert done.returncode == 2
    assert done.stderr.startswith(f"recordpublisher: option '--port' is {port}: ")


@pytest.mark.parametrize("place", ["file", "variable"])
async def test_the_token_may_be_in_a_file_or_a_variable(tmp_path, place):
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    arguments = ("--token-file", str(file)) if place == "file" else ()
    environment = {"RECORDPUBLISHER_TRACKER_TOKEN": TOKEN} if place == "variable" else {}
    with a_tracker(*arguments, **environment) as (_, address):
        async with running_job(address, 1) as job:
            one = await job.start(0)
            await wait_until(lambda: one.current() == 5, (one, 5))


async def test_it_serves_over_tls(tmp_path):
    authority = CertificateAuthority(tmp_path)
    certificate, key = authority.issue()
    files = ("--certificate", certificate, "--key", key, "--client-ca", authority.file)
    tls = {"ca": authority.file, "certificate": certificate, "key": key}
    with a_tracker("--token", TOKEN, *files) as (_, address):
        async with running_job(address, 1, **{f"flink.watermark.tracker.tls.{name}": tls[name] for name in tls}) as job:
            one = await job.start(0)
            await wait_until(lambda: one.current() == 5, (one, 5))


def test_a_file_that_tls_cannot_use_names_the_option(tmp_path):
    certificate, _ = CertificateAuthority(tmp_path).issue()
    done = command("tracker", "--token", "t", "--port", "0", "--certificate", certificate, "--key", certificate)

    assert done.returncode == 2
    assert done.stderr.startswith(f"recordpublisher: option '--key' is '{certificate}': it has no private key")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("arguments", [(), ("--token", ""), ("--token-file", "/nowhere/token")])
def test_without_a_token_it_does_not_start(arguments):  # C4
    done = command("tracker", "--port", "0", *arguments)

    assert done.returncode == 2
    assert done.stderr.startswith("recordpublisher: option '--token")
    assert done.stderr.count("\n") == 1
