"""The properties of access: region, endpoint, credentials (C1)."""

from __future__ import annotations

from .property_types import choice, integer, prefix, text

REGION = text(
    "aws.region",
    "The AWS region of streams given by name; taken from the ARNs or the environment when not set. An ARN has its own region.",
    group="Access",
)
ENDPOINT = text("aws.endpoint", "Another endpoint than the region's, for example an embedded one.", group="Access")
REGION_ENDPOINT = prefix(
    "aws.endpoint.", "The same for one region, when the streams of a job are in several.", group="Access"
)
CREDENTIALS_PROVIDER = choice(
    "aws.credentials.provider",
    "Credentials provider; BASIC when both basic keys are set, otherwise AUTO (the SDK's chain).",
    "AUTO",
    ("AUTO", "ENV_VAR", "PROFILE", "BASIC", "ASSUME_ROLE", "WEB_IDENTITY_TOKEN"),
    group="Access",
)
ACCESS_KEY_ID = text(
    "aws.credentials.provider.basic.accesskeyid", "Access key id for BASIC.", group="Access", secret=True
)
SECRET_KEY = text("aws.credentials.provider.basic.secretkey", "Secret key for BASIC.", group="Access", secret=True)
SESSION_TOKEN = text(
    "aws.credentials.provider.basic.sessiontoken", "Session token for BASIC.", group="Access", secret=True
)
PROFILE_NAME = text("aws.credentials.provider.profile.name", "Profile for PROFILE.", group="Access")
PROFILE_PATH = text("aws.credentials.provider.profile.path", "Credentials file for PROFILE.", group="Access")
ROLE_ARN = text("aws.credentials.provider.role.arn", "Role for ASSUME_ROLE and WEB_IDENTITY_TOKEN.", group="Access")
STREAM_ROLE_ARN = prefix(
    "aws.credentials.provider.role.arn.",
    "Role for a stream given by ARN, by the stream's name or its account's id; assumed with the credentials of the provider.",
    group="Access",
)
ROLE_SESSION = text(
    "aws.credentials.provider.role.sessionname", "Session name of the role.", default="recordpublisher", group="Access"
)
ROLE_EXTERNAL_ID = text("aws.credentials.provider.role.externalid", "External id of the role.", group="Access")
ROLE_STS_ENDPOINT = text("aws.credentials.provider.role.stsendpoint", "Another STS endpoint.", group="Access")
WEB_IDENTITY_FILE = text(
    "aws.credentials.provider.webidentitytoken.file", "Token file for WEB_IDENTITY_TOKEN.", group="Access"
)
REQUEST_TIMEOUT = integer(
    "aws.request.timeout", "Deadline of one call, except for subscriptions.", 30_000, 1, unit="ms", group="Access"
)
HTTP_CLIENT = choice(
    "aws.http.client",
    "HTTP client of GetRecords, GetShardIterator and PutRecords: OWN, plain HTTP/1.1 at a fraction of the CPU, or SDK, with its hooks. "
    "Through a proxy the SDK's is always used.",
    "OWN",
    ("OWN", "SDK"),
    group="Access",
)
