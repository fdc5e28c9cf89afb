"""The tracker over TLS: who is believed, and what a person reads of who is not."""

import logging
import socket
import ssl

import pytest

from recordpublisher.plugins.trackers.tcp import client as client_module
from recordpublisher.plugins.trackers.tcp import server as server_module
from recordpublisher.plugins.trackers.tcp.client import TcpTracker
from recordpublisher.plugins.trackers.tcp.server import TrackerServer
from recordpublisher.plugins.trackers.tcp.tls import server_context
from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.properties.properties import Properties

from processes.tracker_clients import TOKEN, running_job, wait_until
from servers.certificates import CertificateAuthority

CA, CERTIFICATE, KEY = (f"flink.watermark.tracker.tls.{name}" for name in ("ca", "certificate", "key"))


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    """On a machine that stops for seconds, no deadline may come before what a test waits for."""
    for module, deadline in (
        (client_module, "CONNECT_TIMEOUT_SECONDS"),
        (client_module, "HANDSHAKE_TIMEOUT_SECONDS"),
        (server_module, "HANDSHAKE_TIMEOUT_SECONDS"),
    ):
        monkeypatch.setattr(module, deadline, 600.0)


@pytest.fixture
def authority(tmp_path):
    return CertificateAuthority(tmp_path)


def tracker_with(certificate, key):
    """A tracker with any certificate, also with one that `server_context` rejects."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return TrackerServer(TOKEN, tls=context)


async def problem_at(server, caplog, host="127.0.0.1", **properties):
    """The one line that a subtask logs of a server that it does not reach."""
    caplog.set_level(logging.WARNING)
    async with running_job(f"{host}:{server.port}", 1, **properties) as job:
        subtask = await job.start(0)
        await wait_until(lambda: caplog.records, (subtask, 5))
        assert (subtask.current(), subtask.is_reachable) == (None, False)
    assert server.groups.connected_subtasks == len(server.groups) == 0
    (record,) = caplog.records
    assert record.exc_info is None
    assert "\n" not in record.message
    return record.message


async def test_subtasks_share_the_value_over_tls(authority):
    context = server_context(*authority.issue())
    properties = {CA: authority.file}
    async with TrackerServer(TOKEN, tls=context) as server, running_job(server.address, 2, **properties) as job:
        a, b = await job.start_all()
        await wait_until(lambda: a.current() == b.current() == 5, (a, 5), (b, 7))

        assert a._connection._transport.get_extra_info("cipher") is not None


async def test_a_host_name_is_checked_too(authority):
    async with TrackerServer(TOKEN, tls=server_context(*authority.issue("localhost"))) as server:
        address = f"localhost:{server.port}"
        async with running_job(address, 1, **{CA: authority.file}) as job:
            one = await job.start(0)
            await wait_until(lambda: one.current() == 5, (one, 5))


async def test_a_context_may_be_given_in_code(authority):
    context = ssl.create_default_context(cafile=authority.file)
    async with TrackerServer(TOKEN, tls=server_context(*authority.issue())) as server:
        properties = {"flink.watermark.tracker.address": server.address, "flink.watermark.tracker.token": TOKEN}
        tracker = TcpTracker(Properties({**properties, "flink.watermark.sync.interval": 50}), tls=context)
        await tracker.open(0, 1)
        await wait_until(lambda: tracker.current() == 5, (tracker, 5))
        await tracker.close()


async def test_a_client_certificate_of_the_ca_is_accepted(authority, tmp_path):
    clients = CertificateAuthority(tmp_path, "clients")
    certificate, key = clients.issue("job")
    context = server_context(*authority.issue(), clients.file)
    properties = {CA: authority.file, CERTIFICATE: certificate, KEY: key}
    async with TrackerServer(TOKEN, tls=context) as server, running_job(server.address, 1, **properties) as job:
        one = await job.start(0)
        await wait_until(lambda: one.current() == 5, (one, 5))


async def test_without_a_client_certificate_the_line_names_the_property(authority, caplog):
    async with TrackerServer(TOKEN, tls=server_context(*authority.issue(), authority.file)) as server:
        problem = await problem_at(server, caplog, **{CA: authority.file})

        assert server._rejections == {"no client certificate": 1}
    assert f"({CERTIFICATE})" in problem


async def test_a_client_certificate_of_another_ca_is_rejected(authority, caplog, tmp_path):
    certificate, key = CertificateAuthority(tmp_path, "others").issue("job")
    async with TrackerServer(TOKEN, tls=server_context(*authority.issue(), authority.file)) as server:
        problem = await problem_at(server, caplog, **{CA: authority.file, CERTIFICATE: certificate, KEY: key})

        assert server._rejections == {"client certificate": 1}
    assert f"({CERTIFICATE})" in problem


async def test_a_certificate_of_another_ca_is_rejected(authority, caplog, tmp_path):
    async with tracker_with(*CertificateAuthority(tmp_path, "others").issue()) as server:
        problem = await problem_at(server, caplog, **{CA: authority.file})

    assert "its certificate is rejected: unable to get local issuer certificate. Valid: " in problem
    assert CA in problem


async def test_an_expired_certificate_is_rejected(authority, caplog):
    async with tracker_with(*authority.issue(days=-1)) as server:
        problem = await problem_at(server, caplog, **{CA: authority.file})

    assert "its certificate is rejected: certificate has expired. Valid: " in problem


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
@pytest.mark.parametrize("has_alternative_name", [True, False], ids=["another name", "common name only"])
async def test_a_certificate_without_the_address_is_rejected(authority, caplog, host, has_alternative_name):
    named = "127.0.0.2" if has_alternative_name else host
    async with tracker_with(*authority.issue(named, has_alternative_name=has_alternative_name)) as server:
        problem = await problem_at(server, caplog, host, **{CA: authority.file})

    assert "mismatch, certificate is not valid for" in problem
    assert "subject alternative name" in problem


async def test_a_plain_subtask_at_a_tracker_with_tls_reads_which_property_is_missing(authority, caplog, monkeypatch):
    monkeypatch.setattr(server_module, "HANDSHAKE_TIMEOUT_SECONDS", 0.4)
    async with TrackerServer(TOKEN, tls=server_context(*authority.issue())) as server:
        problem = await problem_at(server, caplog)

        assert server._rejections.keys() == {"silent"}
    assert f"before the tracker sent anything: if it serves TLS, set {CA}" in problem


async def test_a_subtask_with_tls_at_a_plain_tracker_reads_which_property_is_too_much(authority, caplog):
    async with TrackerServer(TOKEN) as server:
        problem = await problem_at(server, caplog, **{CA: authority.file})

        assert server._rejections.keys() == {"TLS, which is off"}
    assert f"it does not speak TLS, and {CA} is set" in problem


async def test_a_certificate_of_the_ca_does_not_replace_the_token(authority, caplog):
    context = server_context(*authority.issue())
    async with TrackerServer("another token", tls=context) as server:
        problem = await problem_at(server, caplog, **{CA: authority.file})

    assert "it rejects the token (flink.watermark.tracker.token)" in problem


async def test_a_tracker_that_never_answers_the_tls_handshake_is_left(authority, caplog, monkeypatch):
    monkeypatch.setattr(client_module, "CONNECT_TIMEOUT_SECONDS", 0.2)
    caplog.set_level(logging.WARNING)
    with socket.create_server(("127.0.0.1", 0)) as silent:  # connections wait there to be accepted
        async with running_job(f"127.0.0.1:{silent.getsockname()[1]}", 1, **{CA: authority.file}) as job:
            await job.start(0)
            await wait_until(lambda: "it did not answer in time" in caplog.text)


def test_a_context_of_the_other_side_is_an_error():
    properties = {"flink.watermark.tracker.address": "127.0.0.1:1", "flink.watermark.tracker.token": TOKEN}

    with pytest.raises(ConfigurationError, match=r"Valid: an ssl\.SSLContext of ssl\.PROTOCOL_TLS_SERVER"):
        TrackerServer(TOKEN, tls=ssl.create_default_context())
    with pytest.raises(ConfigurationError, match=r"Valid: an ssl\.SSLContext of ssl\.PROTOCOL_TLS_CLIENT"):
        TcpTracker(Properties(properties), tls=ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
