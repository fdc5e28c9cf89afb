"""What a script or a command imports before its first record: it waits for all of it."""

import subprocess
import sys

import pytest

from recordpublisher.local import serve_in_thread

from processes.command_line import process_environment

SDK = {"aiobotocore", "boto3", "botocore", "aiohttp", "urllib3"}
OF_GROUPS = ("recordpublisher.fetcher.elastic", "recordpublisher.fetcher.leases.")
READ_ONE = "import recordpublisher as rp; next(rp.consume('orders', start='TRIM_HORIZON', endpoint={url!r}))"
TAIL_ONE = (
    "from recordpublisher.cli.app import app; "
    "app(['tail', 'orders', '--no-follow', '-n', '1', '--endpoint', {url!r}], standalone_mode=False)"
)


@pytest.fixture(scope="module")
def url():
    with serve_in_thread(streams={"orders": 1}) as endpoint:
        endpoint.stream("orders").put(b"{}", "key")
        yield endpoint.url


def modules_of(script, url, **more):
    environment = process_environment(AWS_ACCESS_KEY_ID="a", AWS_SECRET_ACCESS_KEY="s", AWS_REGION="us-east-1", **more)
    script = f"{script.format(url=url)}; import sys; print(*sys.modules, file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True, timeout=120
    )
    return set(done.stderr.split())


@pytest.mark.parametrize("script", [READ_ONE, TAIL_ONE], ids=["consume", "tail"])
def test_the_first_record_is_read_without_the_aws_sdk_and_without_groups(script, url):
    imported = modules_of(script, url)

    assert "recordpublisher.publishers.polling.publisher" in imported
    assert imported & SDK == set()
    assert {name for name in imported if name.startswith(OF_GROUPS)} == {"recordpublisher.fetcher.leases.lease_counts"}


def test_the_endpoint_of_the_readme_is_an_environment_variable(url):
    script = READ_ONE.replace(", endpoint={url!r}", "")
    assert modules_of(script, url, AWS_ENDPOINT_URL=url) & SDK == set()


def test_what_only_some_jobs_need_is_not_imported(url):
    """Each takes 5 to 20 ms of CPU: a look at every distribution, and at the proxies of a system. (A command has them by its library.)"""
    assert modules_of(READ_ONE, url) & {"importlib.metadata", "urllib.request"} == set()


def test_a_job_that_runs_alone_imports_nothing_of_heartbeats_and_plans(url):
    imported = modules_of("import recordpublisher.fetcher.elastic.alone_worker", url)
    assert {
        f"recordpublisher.fetcher.leases.{each}" for each in ("planning", "heartbeat", "worker")
    } & imported == set()
