"""The AWS SDKs for Java, JavaScript and Go on the embedded endpoint: each puts records, polls them and subscribes to them."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from recordpublisher.local import serve_in_thread

pytestmark = [pytest.mark.compare, pytest.mark.timeout(900)]
HERE = Path(__file__).parent
RECORDS = [f"{number:02d}" for number in range(10)]


def run(*command, **options):
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def java(folder):
    """CBOR over HTTP/2."""
    run("mvn", "-q", "-B", "dependency:build-classpath", f"-Dmdep.outputFile={folder / 'classpath'}", cwd=folder)
    return ["java", "-cp", (folder / "classpath").read_text(), str(folder / "Read.java")]


def javascript(folder):
    """JSON over HTTP/2."""
    run("npm", "ci", "--no-audit", "--no-fund", "--silent", cwd=folder)
    return ["node", str(folder / "read.mjs")]


def go(folder):
    """JSON over HTTP/1.1."""
    run("go", "build", "-o", "read", ".", cwd=folder)
    return [str(folder / "read")]


@pytest.mark.parametrize(("client", "tool"), [(java, "mvn"), (javascript, "npm"), (go, "go")])
def test_a_client_polls_and_subscribes_to_what_it_has_put(client, tool, tmp_path):
    if shutil.which(tool) is None:
        assert os.environ.get("CI") != "true", f"{tool} is missing"
        pytest.skip(f"{tool} is missing: the SDK for {client.__name__} is not tried")
    folder = shutil.copytree(HERE / client.__name__, tmp_path / client.__name__)
    command = client(folder)
    with serve_in_thread(streams={"orders": 2}, http2=True) as endpoint:
        found = json.loads(run(*command, endpoint.url, "orders"))
    assert sorted(found["polled"]) == RECORDS
    assert found["subscribed"] == found["polled"]
