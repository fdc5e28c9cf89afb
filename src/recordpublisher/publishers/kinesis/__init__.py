"""Calls to Amazon Kinesis: the only package here that knows the AWS SDK. Start at `client.py` and `ports.py`.

Public: what a publisher of another AWS service needs too: credentials, endpoints, retries and error translation.
"""

from ..properties.table import LIST_SHARDS_RETRIES
from ..retry import call_with_retries
from .client import KinesisClient
from .credentials import session_with_credentials
from .endpoint import endpoint_of, region_of
from .error_mapping import translate_errors
from .ports import ReadResponse, RecordDistribution
from .run_sync import run_sync

__all__ = [
    "LIST_SHARDS_RETRIES",
    "KinesisClient",
    "ReadResponse",
    "RecordDistribution",
    "call_with_retries",
    "endpoint_of",
    "region_of",
    "run_sync",
    "session_with_credentials",
    "translate_errors",
]
