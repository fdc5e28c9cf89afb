"""ConsumerRegistrar: the consumers of one factory, shared by its shards (F4, F8)."""

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor

import pytest

import recordpublisher as rp
from recordpublisher.local import serve_in_thread
from recordpublisher.publishers.errors import ConfigurationError, ConsumerError, FatalKinesisError
from recordpublisher.publishers.fanout.config import FanOutConfig
from recordpublisher.publishers.fanout.registration import ConsumerKey, ConsumerRefCounts, ConsumerRegistrar
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.testing.virtual_time import VirtualClock, run_virtual

from fakes.fanout_service import ARN, EFO, STREAM_ARN, ScriptedPorts, throttled

NONE = {"flink.stream.efo.registration": "NONE", "flink.stream.efo.consumerarn.orders": ARN}
EAGER = {"flink.stream.efo.registration": "EAGER"}
NEVER = {"flink.stream.efo.deregister": "NEVER"}


def registrar(ports, ref_counts=None, draw=1.0, **properties):
    config = FanOutConfig.of(Properties({**EFO, **properties}))
    return ConsumerRegistrar(ports, config, VirtualClock(), "", ref_counts or ConsumerRefCounts(), lambda: draw)


def test_lazy_registers_once_for_all_shards_after_a_small_delay():
    ports = ScriptedPorts()

    async def main():
        made = registrar(ports, draw=0.5)
        await asyncio.gather(*[made.ensure("orders") for _ in range(100)])
        assert made.arn("orders") == ARN
        assert VirtualClock().monotonic() == 0.1  # half of the backoff base of 200 ms

    run_virtual(main())
    assert ports.consumers.calls == ["stream", "describe", "register"]


def test_a_known_stream_arn_costs_no_call():
    ports = ScriptedPorts()
    run_virtual(registrar(ports).ensure("orders", STREAM_ARN))
    assert ports.consumers.calls == ["describe", "register"]


def test_eager_without_a_given_arn_registers_without_delay():
    ports = ScriptedPorts()

    async def main():
        await registrar(ports, **EAGER).ensure("orders")
        assert VirtualClock().monotonic() == 0

    run_virtual(main())
    assert ports.consumers.count("register") == 1


@pytest.mark.parametrize("closed_last", [0, 1])
def test_f8_a_consumer_that_a_job_still_needs_is_not_deregistered_by_the_others(closed_last):
    ports, ref_counts = ScriptedPorts(), ConsumerRefCounts()

    async def main():
        failed, other = registrar(ports, ref_counts), registrar(ports, ref_counts)
        for made in (failed, other):
            await made.ensure("orders")
        failed.keep_registered()
        for made in (other, failed) if closed_last == 0 else (failed, other):
            await made.close()

    run_virtual(main())
    assert ports.consumers.count("deregister") == 0


def test_none_uses_the_given_arn_without_a_call():
    ports = ScriptedPorts()
    made = registrar(ports, **NONE)
    run_virtual(made.ensure("orders"))
    assert (made.arn("orders"), ports.consumers.calls) == (ARN, [])


def test_none_without_an_arn_never_registers_even_with_a_name():
    ports = ScriptedPorts()
    with pytest.raises(ConfigurationError, match=r"consumerarn\.clicks"):
        run_virtual(registrar(ports, **NONE).ensure("clicks"))
    assert ports.consumers.calls == []


def test_f4_a_vanished_consumer_is_registered_again_once_for_all_its_shards():
    ports = ScriptedPorts()

    async def main():
        made = registrar(ports)
        await made.ensure("orders")
        ports.consumers.remove("app")
        found = await asyncio.gather(*[made.reregister_if_gone("orders", ARN) for _ in range(100)])
        assert (set(found), made.arn("orders")) == ({True}, f"{STREAM_ARN}/consumer/app:2")

    run_virtual(main())
    assert ports.consumers.count("register") == 2
    assert ports.consumers.count("describe") == 3


def test_f4_a_consumer_that_another_process_registered_again_is_used():
    ports = ScriptedPorts()

    async def main():
        made = registrar(ports)
        await made.ensure("orders")
        ports.consumers.remove("app")
        other = ports.consumers.add("app")
        assert await made.reregister_if_gone("orders", ARN)
        assert made.arn("orders") == other

    run_virtual(main())
    assert ports.consumers.count("register") == 1


def test_f4_an_existing_consumer_is_not_registered_again():
    ports = ScriptedPorts()

    async def main():
        made = registrar(ports)
        await made.ensure("orders")
        assert not await made.reregister_if_gone("orders", ARN)

    run_virtual(main())


def test_f4_with_registration_none_a_vanished_consumer_is_an_error():
    ports = ScriptedPorts()

    async def main():
        made = registrar(ports, **NONE)
        await made.ensure("orders")
        ports.consumers.add("else")
        ports.consumers.add("app")  # the same name, registered later: another ARN
        await made.reregister_if_gone("orders", ARN)

    with pytest.raises(ConsumerError, match=rf"{ARN}\. With .*=NONE the job does not register it"):
        run_virtual(main())


def test_f8_a_stopping_worker_does_not_register_again():
    ports = ScriptedPorts()

    async def main():
        made = registrar(ports)
        await made.ensure("orders")
        await made.close()
        assert ports.consumers.names == []
        with pytest.raises(ConsumerError, match="stopping"):
            await made.reregister_if_gone("orders", ARN)

    run_virtual(main())
    assert ports.consumers.count("register") == 1


@pytest.mark.parametrize("properties", [{}, EAGER])
def test_f8_the_last_user_deregisters_once(properties):
    ports, ref_counts = ScriptedPorts(), ConsumerRefCounts()

    async def main():
        workers = [registrar(ports, ref_counts, **properties) for _ in range(3)]
        for worker in workers:
            await worker.ensure("orders")
        for worker in workers:
            assert ports.consumers.count("deregister") == 0
            await worker.close()

    run_virtual(main())
    assert ports.consumers.count("deregister") == 1
    assert ports.consumers.count("register") == 1


def test_f8_closing_twice_deregisters_once():
    ports = ScriptedPorts()

    async def main():
        made = registrar(ports)
        await made.ensure("orders")
        await made.close()
        await made.close()

    run_virtual(main())
    assert ports.consumers.count("deregister") == 1


@pytest.mark.parametrize("properties", [NONE, NEVER])
def test_f8_registration_none_and_deregistration_never_do_not_deregister(properties):
    ports = ScriptedPorts()

    async def main():
        made = registrar(ports, **properties)
        await made.ensure("orders")
        await made.close()

    run_virtual(main())
    assert ports.consumers.count("deregister") == 0


def test_lazy_looks_the_consumer_up_even_with_a_given_arn():
    ports = ScriptedPorts()
    made = registrar(ports, **{"flink.stream.efo.consumerarn.orders": ARN.replace("app", "old")})
    run_virtual(made.ensure("orders"))
    assert made.arn("orders") == ARN


@pytest.mark.parametrize(
    "error",
    [FatalKinesisError("DeregisterStreamConsumer", "AccessDeniedException", "no"), throttled()],
)
def test_f8_a_failed_deregistration_is_logged_and_does_not_fail_the_stop(error, caplog):
    ports = ScriptedPorts()
    ports.consumers.errors["deregister"] = [error] * 100

    async def main():
        made = registrar(ports)
        await made.ensure("orders")
        await made.close()

    with caplog.at_level(logging.WARNING):
        run_virtual(main())
    assert f"consumer 'app' on {STREAM_ARN} stays registered" in caplog.text


def test_f8_a_deregistration_ends_at_its_time_out(caplog):
    ports = ScriptedPorts()
    ports.consumers.errors["deregister"] = [throttled()] * 10_000
    patient = {
        "flink.stream.deregisterstreamconsumer.maxretries": 100_000,
        "flink.stream.deregisterstreamconsumer.timeout": 5,
    }

    async def main():
        made = registrar(ports, **patient)
        await made.ensure("orders")
        started = VirtualClock().monotonic()
        await made.close()
        assert VirtualClock().monotonic() - started == 5

    run_virtual(main())
    assert "Timeout waiting for stream consumer to deregister" in caplog.text


def test_f8_a_close_that_is_cut_off_names_the_consumers_that_may_stay_registered(caplog):
    ports = ScriptedPorts()
    first, second, third = (STREAM_ARN.replace("orders", name) for name in ("orders", "bills", "shops"))
    ref_counts, is_called = ConsumerRefCounts(), asyncio.Event()

    async def hang(arn):
        is_called.set()
        await asyncio.Event().wait()

    async def main():
        made, other = registrar(ports, ref_counts), registrar(ports, ref_counts)
        for stream, arn in (("orders", first), ("bills", second), ("shops", third)):
            await made.ensure(stream, arn)
        await other.ensure("shops", third)  # another job of the process uses it
        ports.deregister_consumer = hang
        closing = asyncio.create_task(made.close())
        await is_called.wait()
        closing.cancel()
        await asyncio.wait([closing])
        return closing.cancelled(), ref_counts._counts.keys()

    is_cancelled, kept = run_virtual(main())
    (told,) = [each for each in caplog.messages if "billed" in each]
    assert told.endswith(f": 'app' on {first}, 'app' on {second}")
    assert is_cancelled
    assert {key.stream_arn for key in kept} == {third}


# ConsumerRefCounts: which user of a consumer is the last one (F8).


KEY = ConsumerKey("", "arn", "app")


def test_only_the_last_release_returns_true():
    ref_counts = ConsumerRefCounts()
    ref_counts.acquire(KEY)
    ref_counts.acquire(KEY)
    assert [ref_counts.release(KEY, keeps_registered=False), ref_counts.release(KEY, keeps_registered=False)] == [
        False,
        True,
    ]


def test_consumers_are_counted_separately():
    ref_counts = ConsumerRefCounts()
    ref_counts.acquire(KEY)
    ref_counts.acquire(ConsumerKey("http://127.0.0.1:1", "arn", "app"))
    assert ref_counts.release(KEY, keeps_registered=False)


def test_after_a_failure_the_last_release_returns_false_and_counting_starts_again():
    ref_counts = ConsumerRefCounts()
    ref_counts.acquire(KEY)
    ref_counts.acquire(KEY)
    assert [ref_counts.release(KEY, keeps_registered=True), ref_counts.release(KEY, keeps_registered=False)] == [
        False,
        False,
    ]
    ref_counts.acquire(KEY)
    assert ref_counts.release(KEY, keeps_registered=False)


def test_threads_may_acquire_and_release_at_the_same_time():
    ref_counts = ConsumerRefCounts()

    def one(_: int) -> bool:
        ref_counts.acquire(KEY)
        return ref_counts.release(KEY, keeps_registered=False)

    ref_counts.acquire(KEY)
    with ThreadPoolExecutor(8) as pool:
        assert not any(pool.map(one, range(1_000)))
    assert ref_counts.release(KEY, keeps_registered=False)


# A job with fan-out deregisters its consumer when it ends, and not when it fails: its restart needs it (F8).


class FailingSink(rp.Sink):
    """A sink whose disk is full."""

    async def write(self, batch):
        raise OSError("the disk is full")


def failing(record):
    raise OSError("the disk is full")


def consumers_after(make_sink):
    """How many consumers are registered after a job with this sink, and the error that ended it."""
    with serve_in_thread(streams={"orders": 1}) as server:
        server.call(lambda: server.endpoint.stream("orders").put(b"data", "key"))
        settings = {"registration": "LAZY", "consumername": "app"}
        properties = {
            **server.properties(),
            "flink.stream.initpos": "TRIM_HORIZON",
            "flink.stream.recordpublisher": "EFO",
            **{f"flink.stream.efo.{key}": value for key, value in settings.items()},
        }

        async def job():
            async with rp.DataFetcher(["orders"], properties, sink=make_sink()) as fetcher:
                await fetcher.run_bounded(max_records=1)

        error = None
        try:
            asyncio.run(job())
        except (rp.RecordPublisherError, OSError) as raised:
            error = raised
        now_ms = server.endpoint.clock.now_ms()
        known = server.call(server.endpoint.stream("orders").consumers.all)
        return [consumer.status(now_ms) for consumer in known], error


@pytest.mark.parametrize("make_sink", [FailingSink, lambda: rp.MapSink(failing, retries=0)], ids=["sink", "handler"])
def test_f8_after_a_failed_write_the_consumer_stays_registered(make_sink):
    statuses, error = consumers_after(make_sink)
    assert statuses == ["ACTIVE"]
    assert "the disk is full" in str(error)


def test_f8_after_a_job_that_ended_the_consumer_is_deregistered():
    statuses, error = consumers_after(rp.MemorySink)
    assert statuses in (["DELETING"], [])
    assert error is None
