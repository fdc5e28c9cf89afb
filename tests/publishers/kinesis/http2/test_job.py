"""A whole job over HTTP/2, with and without TLS, while the stream is split."""

import boto3
import pytest

from recordpublisher.local import serve_in_thread

from processes.live_job import LiveJob, split
from servers.certificates import self_signed
from servers.http2.front import front_of
from servers.kinesis_conversation import open_conversation


@pytest.fixture
def certificate(tmp_path):
    return self_signed(tmp_path)


@pytest.mark.parametrize("tls", [False, True], ids=["h2c", "tls"])
async def test_a_job_reads_every_record_once_and_in_order_through_a_split(tls, certificate, monkeypatch):
    if tls:
        monkeypatch.setenv("AWS_CA_BUNDLE", certificate[0])
    session = boto3.Session(aws_access_key_id="local", aws_secret_access_key="local", region_name="us-east-1")
    with (
        serve_in_thread() as endpoint,
        open_conversation(session.client("kinesis", endpoint_url=endpoint.url), 2) as conversation,
    ):
        async with front_of(endpoint.url, certificate=certificate if tls else None) as front:
            efo = {
                "flink.stream.recordpublisher": "EFO",
                "aws.http.protocol.version": "HTTP2",
                "aws.endpoint": front.url,
            }
            job = LiveJob(conversation, **efo)
            await job.run(split(0, 2**126))
            await job.run()

    assert job.read == job.sent
    assert job.open_shards == 3
    assert "2" in front.versions
    assert len(front.clients) >= 4
