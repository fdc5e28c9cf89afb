"""What the subtask processes of `run --parallelism` get from their supervisor."""

from recordpublisher.plugins.runtime.jobs.supervisor import with_local_tracker
from recordpublisher.publishers.properties.properties import Properties

TLS_CA = "flink.watermark.tracker.tls.ca"


async def test_the_tracker_of_one_machine_has_a_new_token_and_no_tls():  # C4
    """It listens on loopback; settings for another tracker would keep the subtasks from it."""
    async with with_local_tracker(Properties({TLS_CA: "/nowhere/ca.pem", "my.own": "kept"})) as given:
        assert given["flink.watermark.tracker"] == "TCP"
        assert given["flink.watermark.tracker.address"].startswith("127.0.0.1:")
        assert len(given["flink.watermark.tracker.token"]) == 32
        assert TLS_CA not in given
        assert given["my.own"] == "kept"


async def test_a_tracker_that_the_job_names_is_left_as_it_is():
    properties = Properties({"flink.watermark.tracker": "TCP", TLS_CA: "ca.pem"})
    async with with_local_tracker(properties) as given:
        assert given is properties
