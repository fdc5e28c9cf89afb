"""Credentials that expire again and again, for a group on DynamoDB: a key that is too old is refused, as the service does."""

import json
import re
import time
from datetime import UTC, datetime, timedelta

import pytest
from aiohttp import web

from groups.costs.counting_proxy import CountingProxy, counting_proxy
from groups.load import SteadyLoad
from groups.worker_group import worker_group
from processes.job_files import end
from servers.moto_server import serve_moto

SHARDS, VALID_SECONDS = 4, 3
LATE_SECONDS = 5
"""A busy machine may need them from the signing of a call to its arrival."""
PATH = "/credentials"


class ExpiringKeys(CountingProxy):
    """Issues keys at PATH, as a container's agent does, and refuses calls that are signed with an expired one."""

    def __init__(self, target):
        super().__init__(target)
        self.issued, self.used, self.refused = {}, set(), 0

    async def _forward(self, request):
        if request.path == PATH:
            return self._issue()
        key = re.search(r"Credential=([^/]+)/", request.headers["Authorization"])[1]
        if time.monotonic() - self.issued.get(key, 0) > VALID_SECONDS + LATE_SECONDS:
            self.refused += 1
            expired = {"__type": "com.amazonaws.dynamodb.v20120810#ExpiredTokenException", "message": "expired"}
            return web.Response(status=400, text=json.dumps(expired), content_type="application/x-amz-json-1.0")
        self.used.add(key)
        return await super()._forward(request)

    def _issue(self):
        key = f"KEY{len(self.issued)}"
        self.issued[key] = time.monotonic()
        until = datetime.now(UTC) + timedelta(seconds=VALID_SECONDS)
        names = {"AccessKeyId": key, "SecretAccessKey": "s", "Token": "t", "Expiration": f"{until:%Y-%m-%dT%H:%M:%SZ}"}
        return web.json_response(names)


@pytest.fixture
def keys(monkeypatch, tmp_path):
    with serve_moto() as moto, counting_proxy(moto, ExpiringKeys) as keys:
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
            monkeypatch.delenv(name, raising=False)
        for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
            monkeypatch.setenv(name, str(tmp_path / "none"))
        monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{keys.url}{PATH}")
        yield keys


@pytest.mark.kills
def test_a_group_goes_on_while_its_credentials_expire(keys, tmp_path):
    properties = {
        "aws.credentials.provider": "AUTO",
        "flink.state.uri": "dynamodb://groups/orders",
        "flink.state.endpoint": keys.url,
        "flink.state.checkpoint.interval": 500,
        "flink.lease.duration": 4_000,
    }
    with worker_group(tmp_path, SHARDS, properties) as group:
        with SteadyLoad(group, SHARDS, 5):
            for name in ("first", "second"):
                group.join(name)
            group.wait_until_each_writes("first", "second")
            began = time.monotonic()
            group.wait_until(lambda: time.monotonic() - began > 4 * VALID_SECONDS)
            group.processes["first"].kill()
            group.wait_until_all_is_written()
        group.wait_until_all_is_written()
        assert end(group.processes["second"]) == 0
    assert len(keys.used) > 4
    assert keys.refused == 0
