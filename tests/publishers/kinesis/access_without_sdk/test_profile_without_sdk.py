"""A profile with nothing but keys and a region is read without the AWS SDK; any other is left to it."""

import pytest

from recordpublisher.publishers.kinesis.credentials_without_sdk import plain_profile
from recordpublisher.publishers.properties.properties import Properties

KEYS = "aws_access_key_id = AKID\naws_secret_access_key = secret\n"
READ = {"aws_access_key_id": "AKID", "aws_secret_access_key": "secret"}


@pytest.fixture(autouse=True)
def files(monkeypatch, tmp_path):
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))

    def write(credentials="", config=""):
        (tmp_path / "credentials").write_text(credentials)
        (tmp_path / "config").write_text(config)

    return write


def profile(name=None):
    return plain_profile(Properties({} if name is None else {"aws.credentials.provider.profile.name": name}))


def test_without_files_it_is_empty():
    assert profile() == {}


def test_keys_and_region_are_read_from_both_files(files):
    files(f"[default]\n{KEYS}[work]\n{KEYS}", "[default]\nregion=eu-west-1\n[profile work]\nregion=eu-north-1\n")

    assert profile() == {**READ, "region": "eu-west-1"}
    assert profile("work") == {**READ, "region": "eu-north-1"}


def test_keys_are_those_of_one_file(files):
    files(
        f"[default]\n{KEYS}",
        "[default]\naws_access_key_id=OTHER\naws_secret_access_key=s\naws_session_token=of the other\n",
    )

    assert profile() == READ


def test_the_environment_names_a_profile(files, monkeypatch):
    files(f"[work]\n{KEYS}")
    monkeypatch.setenv("AWS_PROFILE", "work")

    assert profile() == READ


@pytest.mark.parametrize(
    "line",
    [
        "role_arn=x",
        "credential_process=x",
        "use_fips_endpoint=true",
        "sso_session=x",
        "ca_bundle=x",
        "s3 =\n  max_queue_size=9",
    ],
)
def test_any_other_setting_needs_the_sdk(files, line):
    files(f"[default]\n{KEYS}", f"[default]\n{line}\n")

    assert profile() is None


def test_a_profile_that_is_missing_is_the_sdks_error(files):
    files(f"[default]\n{KEYS}")

    assert profile("work") is None


@pytest.mark.parametrize("text", ["no section", "[default]\nregion=a\nregion=b\n", "[default]\nregion=\udcff\n"])
def test_a_file_that_cannot_be_read_is_the_sdks_error(tmp_path, text):
    (tmp_path / "config").write_bytes(text.encode(errors="surrogateescape"))

    assert profile() is None


@pytest.mark.parametrize(
    "config",
    [
        "[DEFAULT]\nregion=x\n[default]\nregion=y\n",
        "[default]\nregion=x\n[profile default]\nregion=y\n",
        "[profile 'other one']\nregion=x\n",
        "[profile  x]\nregion=x\n",
        "[profile x]\noutput =\n  json\n",
        "[default]\nregion =\n  a=b\n",
    ],
)
def test_a_file_that_the_sdk_may_read_otherwise_decides_nothing(files, config):
    files(f"[default]\n{KEYS}", config)

    assert profile() is None


@pytest.mark.parametrize("name", ["", "default"])
def test_a_profile_that_is_named_must_be_there(files, monkeypatch, name):
    monkeypatch.setenv("AWS_PROFILE", name)

    assert profile() is None


def test_a_variable_in_a_path_is_the_sdks(files, monkeypatch, tmp_path):
    files(f"[default]\n{KEYS}")
    monkeypatch.setenv("FOLDER", str(tmp_path))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "$FOLDER/credentials")

    assert profile() is None
