"""Calls Amazon Kinesis. Only this package knows the AWS SDK.

- `ports.py` has the calls as the layers above see them, and `client.py` makes them.
- `direct_transport.py` sends a call. If only the SDK can send it, `sdk/transport.py` does. `access_without_sdk.py` decides.
- `endpoints.py` says where calls go, and `credentials_without_sdk.py` which keys sign them.
- `codec.py` and `event_subscription.py` decode responses, and `error_mapping.py` errors.

The public names are what a publisher of another AWS service also needs: credentials, endpoints, retries and the translation of errors. A
name whose module loads the AWS SDK (over a second of CPU time) is imported at its first use, so that `ports.py` and other light modules
stay cheap.
"""

import importlib
from typing import TYPE_CHECKING, Any

from ..properties.reading_properties import LIST_SHARDS_RETRIES
from ..retry import call_with_retries
from .ports import ReadResponse, RecordDistribution, run_sync

if TYPE_CHECKING:
    from .client import KinesisClient
    from .endpoints import endpoint_of, region_of
    from .error_mapping import is_host_unknown, is_refused, is_unanswered, speaks_no_tls, translate_errors
    from .sdk.credentials import session_with_credentials

_LAZY = {
    "KinesisClient": ".client",
    "endpoint_of": ".endpoints",
    "is_host_unknown": ".error_mapping",
    "is_refused": ".error_mapping",
    "is_unanswered": ".error_mapping",
    "region_of": ".endpoints",
    "speaks_no_tls": ".error_mapping",
    "session_with_credentials": ".sdk.credentials",
    "translate_errors": ".error_mapping",
}

__all__ = [
    "LIST_SHARDS_RETRIES",
    "KinesisClient",
    "ReadResponse",
    "RecordDistribution",
    "call_with_retries",
    "endpoint_of",
    "is_host_unknown",
    "is_refused",
    "is_unanswered",
    "region_of",
    "run_sync",
    "session_with_credentials",
    "speaks_no_tls",
    "translate_errors",
]


if not TYPE_CHECKING:  # Hidden from type checkers, which would accept any name because of `__getattr__`.

    def __getattr__(name: str) -> Any:
        if name not in _LAZY:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(importlib.import_module(_LAZY[name], __name__), name)
