"""A plugin of pytest: in place of moto's mock, a fresh embedded endpoint for each test."""

from __future__ import annotations

import os
from contextlib import ContextDecorator, ExitStack
from typing import Any

import moto
import moto.core

from recordpublisher.local import Delays, serve_in_thread
from recordpublisher.local.streams import account


class FreshEndpoint(ContextDecorator):
    """Owns the endpoint of one test: a decorator and a context manager, as moto's."""

    def __enter__(self) -> FreshEndpoint:
        self._open = ExitStack()
        server = self._open.enter_context(serve_in_thread(delays=Delays(consumer=0)))
        os.environ["AWS_ENDPOINT_URL_KINESIS"] = server.endpoint.url
        return self

    def __exit__(self, *_: object) -> None:
        del os.environ["AWS_ENDPOINT_URL_KINESIS"]
        self._open.close()

    def _recreate_cm(self) -> FreshEndpoint:
        return FreshEndpoint()


def mock_aws(function: Any = None, config: object = None) -> Any:
    return FreshEndpoint() if function is None else FreshEndpoint()(function)


moto.mock_aws = mock_aws
account.ACCOUNT_ID = moto.core.DEFAULT_ACCOUNT_ID
