"""A plugin of pytest: in place of moto's mock, a fresh embedded endpoint for each test."""

from __future__ import annotations

from contextlib import ContextDecorator, ExitStack
from typing import Any
from unittest import mock

import boto3
import moto
import moto.core

from recordpublisher.local import Delays, account, serve_in_thread

real_client = boto3.client
moto_mock = moto.mock_aws


class FreshEndpoint(ContextDecorator):
    """Owns the endpoints of one test, one a region: a decorator and a context manager, as moto's."""

    def __enter__(self) -> FreshEndpoint:
        self._open = ExitStack()
        self._urls: dict[str, str] = {}
        self._has_sts = False
        self._open.enter_context(mock.patch.object(boto3, "client", self._client))
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def _client(self, service: str, region_name: str = "us-east-1", **options: Any) -> Any:
        if service == "sts":  # which tests ask for their account: moto's own
            if not self._has_sts:
                self._open.enter_context(moto_mock())
                self._has_sts = True
            return real_client(service, region_name=region_name, endpoint_url="https://sts.amazonaws.com", **options)
        if service != "kinesis":
            return real_client(service, region_name=region_name, **options)
        if region_name not in self._urls:
            server = serve_in_thread(delays=Delays(consumer=0), region=region_name)
            self._urls[region_name] = self._open.enter_context(server).url
        return real_client(service, region_name=region_name, endpoint_url=self._urls[region_name], **options)

    def _recreate_cm(self) -> FreshEndpoint:
        return FreshEndpoint()


def mock_aws(function: Any = None, config: object = None) -> Any:
    return FreshEndpoint() if function is None else FreshEndpoint()(function)


moto.mock_aws = mock_aws
account.ACCOUNT_ID = moto.core.DEFAULT_ACCOUNT_ID
