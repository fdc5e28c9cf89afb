"""Random AWS configurations: the calls that need no SDK are signed with the keys and sent to the endpoint that the SDK would use."""

import os
import random

import pytest
from aiobotocore.config import AioConfig

from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.kinesis.access_without_sdk import access_without_sdk
from recordpublisher.publishers.kinesis.endpoints import region_of
from recordpublisher.publishers.kinesis.sdk.credentials import session_with_credentials
from recordpublisher.publishers.properties.properties import Properties

from random_inputs import inputs

PREFIX = "aws.credentials.provider"
NAMES = ["default", "default", "x", "x", "my team"]
COUNT = inputs(1000, 150)


@pytest.fixture(autouse=True)
def home(monkeypatch, tmp_path):
    """The folder of the user's files, in an environment with nothing of AWS."""
    for name in [name for name in os.environ if name.startswith("AWS_") or name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    (tmp_path / ".aws").mkdir()
    return tmp_path


class Configuration:
    """A random one: files, environment and properties; mostly plain, and sometimes not."""

    def __init__(self, seed, home):
        self.chance = random.Random(seed)
        self.odd = self.chance.choice([0.01, 0.03, 0.1])
        self.home, self.count = home, 0
        self.config, self.credentials = self.sections("config"), self.sections("credentials")
        self.environment = self.some(
            AWS_PROFILE=self.chance.choice([*NAMES, "", "gone"]),
            AWS_REGION="eu-central-1",
            AWS_DEFAULT_REGION="eu-south-1",
            AWS_ENDPOINT_URL=self.chance.choice(
                ["http://localhost:4567", "https://host.example/path", "", "localhost"]
            ),
            AWS_ENDPOINT_URL_KINESIS="http://127.0.0.1:4568",
            AWS_ENDPOINT_URL_S3="http://127.0.0.1:4569",
            AWS_USE_FIPS_ENDPOINT="true",
            AWS_IGNORE_CONFIGURED_ENDPOINT_URLS=self.chance.choice(["true", "false"]),
            AWS_CONFIG_FILE=self.chance.choice(["$HOME/.aws/config", "~/.aws/config", str(home / "missing")]),
            AWS_SHARED_CREDENTIALS_FILE=self.chance.choice(["$HOME/.aws/credentials", "~/.aws/credentials"]),
            AWS_LAMBDA_FUNCTION_NAME="f",
            AWS_CONTAINER_CREDENTIALS_RELATIVE_URI="/x",
        )
        if self.chance.random() < 0.4:
            self.environment |= {"AWS_ACCESS_KEY_ID": self.key(), "AWS_SECRET_ACCESS_KEY": "s"}
            self.environment |= self.some(AWS_SESSION_TOKEN=self.chance.choice(["T", ""]))
        self.properties = {"aws.region": "us-east-2"} if self.chance.random() < 0.9 else {}
        self.properties |= self.some(
            **{f"{PREFIX}.profile.name": self.chance.choice(NAMES), "aws.endpoint": "http://localhost:1"}
        )
        self.properties |= self.some(**{f"{PREFIX}.profile.path": "$HOME/.aws/credentials"})
        if self.chance.random() < 0.1:
            self.properties |= {f"{PREFIX}.basic.accesskeyid": self.key(), f"{PREFIX}.basic.secretkey": "s"}

    def some(self, **given):
        return {name: value for name, value in given.items() if self.chance.random() < self.odd}

    def key(self):
        self.count += 1
        return f"AK{self.count}"

    def sections(self, file):
        names = self.chance.choices(NAMES, k=3) if self.chance.random() < self.odd else ["default", "x"]
        if self.chance.random() < self.odd:
            names.append("my team")
        return "".join(self.section(file, name) for name in names if self.chance.random() < 0.8)

    def section(self, file, name):
        shown = name if file == "credentials" or name == "default" else f"profile {name}"
        if " " in name and file == "config":
            shown = f"profile '{name}'"
        odd = ["DEFAULT", "profile default", f'profile "{name}"', f"profile  {name}", f" {shown} "]
        header = self.chance.choice(odd) if self.chance.random() < self.odd else shown
        keys = f"aws_access_key_id = {self.key()}\naws_secret_access_key = s\n"
        lines = [keys] if self.chance.random() < (0.8 if file == "credentials" else 0.2) else []
        lines += self.some(
            token="aws_session_token = T\n",
            region="region = ap-south-1\n",
            endpoint="endpoint_url = http://localhost:4570\n",
            fips="use_fips_endpoint = true\n",
            services="services = l\n[services l]\nkinesis =\n  endpoint_url = http://localhost:4571\n",
            nested="s3 =\n  addressing_style = path\n",
            dual="use_dualstack_endpoint = true\n",
            comment="# region = nowhere\n",
            colon="region: sa-east-1\n",
            continued="output =\n  json\n",
        ).values()
        return f"[{header}]\n{''.join(lines)}"


async def of_the_sdk(properties, region):
    session = session_with_credentials(properties, region)
    credentials = await (await session.get_credentials()).get_frozen_credentials()
    endpoint = properties.get("aws.endpoint")
    config = AioConfig(retries={"total_max_attempts": 1})
    async with session.create_client("kinesis", region_name=region, endpoint_url=endpoint, config=config) as client:
        return credentials.access_key, credentials.token or None, client.meta.endpoint_url


async def test_keys_and_endpoint_are_those_of_the_sdk(home, monkeypatch):
    known = 0
    for seed in range(COUNT):
        given = Configuration(seed, home)
        (home / ".aws" / "config").write_text(given.config)
        (home / ".aws" / "credentials").write_text(given.credentials)
        with monkeypatch.context() as patched:
            for name, value in given.environment.items():
                patched.setenv(name, value)
            properties = Properties(given.properties)
            try:
                region = region_of(properties)
                access = access_without_sdk(properties, region, None)
            except ConfigurationError:  # of the SDK, or none of both finds a region
                continue
            if access is None:
                continue
            known += 1
            seen = access.keys.access_key, access.keys.token, access.url_of(None, "ListShards").rstrip("/")
            assert seen == await of_the_sdk(properties, region), f"seed {seed}"
    assert known > COUNT / 4  # otherwise little was compared


async def test_the_region_is_that_of_the_sdk(home, monkeypatch):
    for seed in range(COUNT):
        given = Configuration(seed, home)
        given.properties.pop("aws.region", None)
        given.properties.pop("aws.endpoint", None)
        environment = {name: value for name, value in given.environment.items() if name != "AWS_REGION"}
        (home / ".aws" / "config").write_text(given.config)
        (home / ".aws" / "credentials").write_text(given.credentials)
        with monkeypatch.context() as patched:
            for name, value in environment.items():
                patched.setenv(name, value)
            properties = Properties(given.properties)
            try:
                region = region_of(properties)
            except ConfigurationError:
                continue
            try:
                session = session_with_credentials(properties, region)
            except ConfigurationError:  # a file that only the SDK has read, since the environment has the region
                continue
            assert session.get_config_variable("region") == region, f"seed {seed}"
