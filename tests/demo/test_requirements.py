"""The requirements of the demo are checked before anything starts."""

import stat

import pytest

from recordpublisher import ConfigurationError
from recordpublisher.demo import requirements


def java(tmp_path, text):
    home = tmp_path / "jdk"
    (home / "bin").mkdir(parents=True)
    program = home / "bin" / "java"
    program.write_text(f"#!/bin/sh\necho '{text}' >&2\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return str(home)


@pytest.mark.parametrize("text", ['openjdk version "17.0.15" 2025-04-15', 'java version "21"'])
def test_a_java_that_is_new_enough_passes(tmp_path, monkeypatch, text):
    monkeypatch.setenv("JAVA_HOME", java(tmp_path, text))

    requirements.check_java()


def test_an_old_java_is_named_with_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", java(tmp_path, 'java version "1.8.0_402"'))

    with pytest.raises(ConfigurationError, match=r"Spark needs Java 17 and this is 8.*openjdk-17-jre-headless"):
        requirements.check_java()


def test_a_missing_package_names_the_extra(monkeypatch):
    monkeypatch.setattr(requirements, "PACKAGES", ("json", "no_such_package"))

    with pytest.raises(ImportError, match=r"^the demo needs no_such_package: pip install .*\[demo\]'$"):
        requirements.check_packages()
