"""The recipes of examples/deploy: their commands run, drain on SIGTERM, exit as the recipes expect, and answer the probes."""

import configparser
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
import tomllib
import urllib.error
import urllib.request
import venv
from contextlib import ExitStack

import pytest
import yaml

from recordpublisher.cli.execution import BAD_CONFIGURATION
from recordpublisher.local import serve_in_thread
from recordpublisher.publishers.properties.job_properties import DRAIN_TIMEOUT, PROMETHEUS_ADDRESS

from processes.command_line import ROOT, process_environment
from processes.job_files import end, job_file

FOLDER = ROOT / "examples/deploy"
MANIFESTS = {
    name: yaml.safe_load((FOLDER / f"kubernetes-{name}.yml").read_text()) for name in ("deployment", "elastic")
}
DOCKERFILE = [
    line.split(maxsplit=1) for line in (FOLDER / "Dockerfile").read_text().splitlines() if line[:1] not in ("", "#")
]
COUNT = 20
MISSING = "systemd-analyze is missing: the unit is not verified (Debian: apt-get install systemd)"


class Unit(configparser.ConfigParser):
    """A file of systemd; option names keep their case."""

    optionxform = staticmethod(str)


UNIT = Unit(interpolation=None)
UNIT.read(FOLDER / "recordpublisher.service")
SERVICE = UNIT["Service"]


def docker(name):
    """The argument of an instruction that stands once in the Dockerfile."""
    (argument,) = [words for instruction, words in DOCKERFILE if instruction == name]
    return argument


def container(kind):
    (found,) = MANIFESTS[kind]["spec"]["template"]["spec"]["containers"]
    return found


def kubernetes(kind):
    """The container's command."""
    return [*container(kind)["command"], *container(kind)["args"]]


COMMANDS = {
    "systemd": shlex.split(SERVICE["ExecStart"]),
    "docker": json.loads(docker("ENTRYPOINT")),
    "deployment": kubernetes("deployment"),
}


@pytest.fixture(scope="module")
def orders():
    with serve_in_thread(streams={"orders": 4}) as served:
        for number in range(COUNT):
            served.call(served.endpoint.stream("orders").put, b"%d" % number, str(number))
        yield served


@pytest.fixture
def start(orders, tmp_path):
    """Starts a recipe's command with a job of the test in place of the recipe's, on a free port of loopback."""
    with ExitStack() as started:

        def run(words, name, **properties):
            given = {
                **orders.endpoint.properties(),
                "flink.streams": "orders",
                "flink.stream.initpos": "TRIM_HORIZON",
                "flink.sink": "jsonl",
                "flink.sink.jsonl.path": tmp_path / "out",
                "flink.metrics.exporters": "prometheus",
                **properties,
            }
            job = job_file(tmp_path, given, f"{name}.properties")
            assert words[0].split("/")[-1] == "recordpublisher"
            own = [str(job) if word.endswith("job.properties") else word for word in words[1:]]
            own += ["-p", "flink.metrics.prometheus.address=127.0.0.1:0"]
            process = subprocess.Popen(
                [sys.executable, "-m", "recordpublisher", *own],
                env=process_environment(tmp_path),
                cwd=tmp_path,
                stdin=subprocess.DEVNULL,
                stderr=started.enter_context(job.with_suffix(".err").open("w")),
                start_new_session=True,
            )
            started.callback(process.wait)
            started.callback(process.kill)
            return process, job.with_suffix(".err")

        yield run


def url_of(process, log):
    """Where its pages are, as its log says."""
    wait_until(lambda: "metrics are at" in log.read_text() or process.poll() is not None)
    return re.search(r"metrics are at (http://[\d.:]+)/metrics", log.read_text())[1]


def status(url):
    """The status and text of a page."""
    try:
        with urllib.request.urlopen(url, timeout=60) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def wait_until(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.slow
@pytest.mark.parametrize("recipe", COMMANDS)
def test_its_command_answers_the_probes_and_drains_on_sigterm(start, recipe):
    process, log = start(COMMANDS[recipe], recipe)
    url = url_of(process, log)

    probes = container("deployment")
    wait_until(lambda: status(url + probes["readinessProbe"]["httpGet"]["path"])[0] == 200)
    assert status(url + probes["livenessProbe"]["httpGet"]["path"])[0] == 200
    assert end(process) == 0
    assert all(json.loads(line) for line in log.read_text().splitlines())


@pytest.mark.slow
def test_pods_of_a_group_are_ready_also_without_shards_and_join_and_leave(start, tmp_path):
    """More pods than shards, so that one has none: a rolling update waits until each new pod is ready."""
    callback = "def write(batch):\n    with open('written', 'a') as file:\n        file.write('x' * len(batch.data))\n"
    (tmp_path / "handlers.py").write_text(callback)
    shared = {
        "flink.sink": "callback",
        "flink.sink.callback.function": "handlers:write",
        "flink.state.uri": f"sqlite:///{tmp_path}/group.db",
        "flink.job.name": "orders",
    }
    pods = [start(kubernetes("elastic"), f"pod{number}", **shared) for number in range(5)]
    urls = [url_of(process, log) for process, log in pods]
    wait_until(lambda: all(status(f"{url}/readyz")[0] == 200 for url in urls))
    wait_until(lambda: sum(open_shards_at(url) for url in urls) == 4)

    assert end(pods[0][0]) == 0
    wait_until(lambda: sum(open_shards_at(url) for url in urls[1:]) == 4)
    assert [end(process) for process, _ in pods[1:]] == [0, 0, 0, 0]


def open_shards_at(url):
    return int(re.search(r"recordpublisher_worker_open_shards{.*} (\d+)", status(f"{url}/metrics")[1])[1])


@pytest.mark.slow
def test_a_bad_property_ends_with_the_code_after_which_systemd_does_not_restart(start):
    process, _ = start(COMMANDS["systemd"], "bad", **{"flink.sink": "nowhere"})

    assert process.wait(timeout=60) == BAD_CONFIGURATION
    assert SERVICE["RestartPreventExitStatus"] == str(BAD_CONFIGURATION)


def test_systemd_accepts_the_unit(tmp_path):
    verify = shutil.which("systemd-analyze")
    if verify is None:
        assert os.environ.get("CI") != "true", MISSING
        pytest.skip(MISSING)
    program = shutil.which("true")
    unit = tmp_path / "orders.service"
    unit.write_text((FOLDER / "recordpublisher.service").read_text().replace(COMMANDS["systemd"][0], program))
    done = subprocess.run([verify, "verify", str(unit)], capture_output=True, text=True, timeout=60, check=False)

    assert "orders.service" not in done.stderr, done.stderr
    assert done.returncode == 0


def test_each_recipe_waits_longer_than_a_job_drains():
    grace = [manifest["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] for manifest in MANIFESTS.values()]
    page = (ROOT / "docs/operate/deploy.md").read_text()
    (of_docker,) = re.findall(r"docker run --stop-timeout (\d+)", page)

    assert {*grace, int(SERVICE["TimeoutStopSec"]), int(of_docker)} == {90}
    assert DRAIN_TIMEOUT.default < 90_000


def test_the_image_has_extras_that_exist_and_a_user_that_is_not_root():
    (install,) = [words for name, words in DOCKERFILE if name == "RUN" and "pip install" in words]
    extras = re.search(r"\[(.*)\]", install)[1].split(",")
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]

    assert set(extras) <= set(declared)
    assert int(docker("USER")) > 0


@pytest.mark.slow
def test_the_image_installs_the_wheel_that_the_page_builds_and_runs_the_job_beside_its_module(built, tmp_path):
    """Without dependencies: those come from the package index."""
    (install,) = [words for name, words in DOCKERFILE if name == "RUN" and "pip install" in words]
    copied = [words.split() for name, words in DOCKERFILE if name == "COPY"]
    page = (ROOT / "docs/operate/deploy.md").read_text()
    venv.create(tmp_path / "image", with_pip=True)
    programs = tmp_path / "image/bin"
    environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "PIP_NO_DEPS": "1", "PIP_NO_INDEX": "1"}
    done = subprocess.run(
        install.replace("/tmp/dist", str(built)),
        shell=True,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert (programs / "recordpublisher").exists()
    assert copied == [["dist/*.whl", "/tmp/dist/"], ["job.properties", "shop.py", "./"]]
    assert "pip wheel --no-deps -w dist ." in page


def test_the_health_check_of_the_image_asks_the_page_of_the_default_address():
    check = json.loads(docker("HEALTHCHECK").partition("CMD ")[2])

    first, _, _ = PROMETHEUS_ADDRESS.default.partition("-")  # of a range of ports
    assert f"http://{first}/healthz" in check[-1]
    compile(check[-1], "HEALTHCHECK", "exec")


def test_a_job_whose_processes_are_in_one_pod_has_one_pod():
    assert MANIFESTS["deployment"]["spec"]["replicas"] == 1
    assert MANIFESTS["deployment"]["spec"]["strategy"] == {"type": "Recreate"}


def test_a_pod_of_a_group_leaves_only_when_another_one_is_ready():
    assert "--group" in kubernetes("elastic")
    assert MANIFESTS["elastic"]["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}


@pytest.mark.parametrize("kind", MANIFESTS)
def test_the_probes_ask_the_port_that_the_command_serves(kind):
    ((port,),) = [{each["containerPort"] for each in container(kind)["ports"] if each["name"] == "metrics"}]

    assert f"flink.metrics.prometheus.address=0.0.0.0:{port}" in kubernetes(kind)
    for probe, path in (("livenessProbe", "/healthz"), ("readinessProbe", "/readyz")):
        assert container(kind)[probe]["httpGet"] == {"path": path, "port": "metrics"}
