"""The commands of the page about trackers make certificates that tracker and subtasks accept."""

import os
import shutil
import ssl
import subprocess

import pytest

from recordpublisher.plugins.trackers.tcp.client import TcpTracker
from recordpublisher.plugins.trackers.tcp.server import TrackerServer
from recordpublisher.plugins.trackers.tcp.tls import server_context
from recordpublisher.publishers.properties.properties import Properties

from processes.command_line import ROOT
from processes.documentation_page import blocks
from processes.tracker_clients import TOKEN, running_job, wait_until

pytestmark = pytest.mark.skipif(
    shutil.which("openssl") is None and os.environ.get("CI") != "true", reason="openssl is missing"
)
PAGE = ROOT / "docs/operate/align-over-processes.md"


def make_certificates(folder):
    """Run the page's commands that make files."""
    lines = [
        line.removeprefix("$ ")
        for block in blocks(PAGE, {"10.0.0.5": "127.0.0.1"})
        if block.language == "console"
        for line in block.text.splitlines()
        if line.startswith(("$ openssl", "$ printf"))
    ]
    assert len(lines) == 7
    subprocess.run(["/bin/sh", "-e"], input="\n".join(lines), cwd=folder, check=True, capture_output=True, text=True)


async def test_the_certificates_of_the_page_are_accepted(tmp_path):
    make_certificates(tmp_path)
    ca, certificate, key, *own = (
        str(tmp_path / name) for name in ("ca.pem", "tracker.pem", "tracker.key", "job.pem", "job.key")
    )
    tls = dict(zip(("ca", "certificate", "key"), (ca, *own), strict=True))
    properties = {f"flink.watermark.tracker.tls.{name}": file for name, file in tls.items()}
    context = server_context(certificate, key, ca)
    async with TrackerServer(TOKEN, tls=context) as server, running_job(server.address, 1, **properties) as job:
        one = await job.start(0)
        await wait_until(lambda: one.current() == 5, (one, 5))


async def test_they_pass_the_strict_check_of_later_pythons(tmp_path):
    make_certificates(tmp_path)
    strict = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
    strict.verify_flags |= ssl.VERIFY_X509_STRICT
    context = server_context(str(tmp_path / "tracker.pem"), str(tmp_path / "tracker.key"))
    async with TrackerServer(TOKEN, tls=context) as server:
        address = {"flink.watermark.tracker.address": server.address, "flink.watermark.tracker.token": TOKEN}
        tracker = TcpTracker(Properties(address), tls=strict)
        await tracker.open(0, 1)
        await wait_until(lambda: tracker.current() == 5, (tracker, 5))
        await tracker.close()
