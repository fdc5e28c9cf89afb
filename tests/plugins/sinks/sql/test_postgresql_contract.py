"""The SQL sink passes the contract of sinks on a real PostgreSQL (S1, S6)."""

import secrets
from contextlib import asynccontextmanager

import psycopg
import pytest

import recordpublisher as rp
from recordpublisher.testing import CommittingSinkContract, SinkCase

pytestmark = pytest.mark.servers


class TestPostgresql(CommittingSinkContract):
    deadline = 60.0  # a shared machine may be slow

    @pytest.fixture(autouse=True)
    def _server(self, postgresql):
        self.uri = postgresql

    @asynccontextmanager
    async def open_case(self):
        table = f"rows_{secrets.token_hex(4)}"

        def start():
            return rp.SqlSink(rp.Properties(sink_sql_uri=self.uri, sink_sql_table=table, job_name=table))

        async def written():
            async with await psycopg.AsyncConnection.connect(self.uri.replace("+psycopg", "")) as connection:
                found = await connection.execute(f"SELECT data FROM {table} ORDER BY sequence_number")
                return [bytes(data) for (data,) in await found.fetchall()]

        yield SinkCase(start, written)
