"""Declares the properties of region, endpoint and credentials."""

from ..property_types import PropertyGroup

ACCESS = PropertyGroup("Access")
REGION = ACCESS.text(
    "aws.region",
    "The AWS region of streams given by name. Not set: that of the ARNs or the environment.",
)
ENDPOINT = ACCESS.text("aws.endpoint", "Another endpoint than the region's.")
REGION_ENDPOINT = ACCESS.prefix("aws.endpoint.", "The same for one region, when the streams of a job are in several.")
CREDENTIALS_PROVIDER = ACCESS.choice(
    "aws.credentials.provider",
    "Credentials provider; BASIC when both basic keys are set, otherwise AUTO (the SDK's chain).",
    "AUTO",
    ("AUTO", "ENV_VAR", "PROFILE", "BASIC", "ASSUME_ROLE", "WEB_IDENTITY_TOKEN"),
)
ACCESS_KEY_ID = ACCESS.text("aws.credentials.provider.basic.accesskeyid", "Access key id for BASIC.", secret=True)
SECRET_KEY = ACCESS.text("aws.credentials.provider.basic.secretkey", "Secret key for BASIC.", secret=True)
SESSION_TOKEN = ACCESS.text("aws.credentials.provider.basic.sessiontoken", "Session token for BASIC.", secret=True)
PROFILE_NAME = ACCESS.text("aws.credentials.provider.profile.name", "Profile for PROFILE.")
PROFILE_PATH = ACCESS.text("aws.credentials.provider.profile.path", "Credentials file for PROFILE.")
ROLE_ARN = ACCESS.text("aws.credentials.provider.role.arn", "Role for ASSUME_ROLE and WEB_IDENTITY_TOKEN.")
STREAM_ROLE_ARN = ACCESS.prefix(
    "aws.credentials.provider.role.arn.",
    "Role for a stream given by ARN, by the stream's name or its account's id.",
)
ROLE_SESSION = ACCESS.text(
    "aws.credentials.provider.role.sessionname", "Session name of the role.", default="recordpublisher"
)
ROLE_EXTERNAL_ID = ACCESS.text("aws.credentials.provider.role.externalid", "External id of the role.")
ROLE_STS_ENDPOINT = ACCESS.text("aws.credentials.provider.role.stsendpoint", "Another STS endpoint.")
WEB_IDENTITY_FILE = ACCESS.text("aws.credentials.provider.webidentitytoken.file", "Token file for WEB_IDENTITY_TOKEN.")
REQUEST_TIMEOUT = ACCESS.integer(
    "aws.request.timeout", "Deadline of one call, except for subscriptions.", 30_000, minimum=1, unit="ms"
)
HTTP_CLIENT = ACCESS.choice(
    "aws.http.client",
    "HTTP client of frequent calls: OWN, plain HTTP/1.1 at a fraction of the CPU; or SDK, with its hooks. Through a "
    "proxy always SDK.",
    "OWN",
    ("OWN", "SDK"),
)
