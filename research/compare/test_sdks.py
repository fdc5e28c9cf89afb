"""The AWS SDKs for Java, JavaScript and Go on the embedded endpoint: each puts records, polls them and subscribes to them."""

import json

import pytest

from recordpublisher.local import serve_in_thread

from compare.tools import copied, java_command, require, run

pytestmark = [pytest.mark.compare, pytest.mark.timeout(900)]
RECORDS = [f"{number:02d}" for number in range(10)]


def java(folder):
    """CBOR over HTTP/2."""
    return java_command(folder, "Read.java")


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
    require(tool)
    command = client(copied(client.__name__, tmp_path))
    with serve_in_thread(streams={"orders": 2}, http2=True) as endpoint:
        found = json.loads(run(*command, endpoint.url, "orders"))
    assert sorted(found["polled"]) == RECORDS
    assert found["subscribed"] == found["polled"]
