"""ConsumerRefCounts: who is the last one out (F8)."""

from concurrent.futures import ThreadPoolExecutor

from recordpublisher.publishers.fanout.registration.consumer_refcount import ConsumerKey, ConsumerRefCounts

KEY = ConsumerKey("", "arn", "app")


def test_the_last_one_out_is_told():
    ref_counts = ConsumerRefCounts()
    ref_counts.acquire(KEY)
    ref_counts.acquire(KEY)
    assert [ref_counts.release(KEY, clean=True), ref_counts.release(KEY, clean=True)] == [False, True]


def test_consumers_are_counted_apart():
    ref_counts = ConsumerRefCounts()
    ref_counts.acquire(KEY)
    ref_counts.acquire(ConsumerKey("http://127.0.0.1:1", "arn", "app"))
    assert ref_counts.release(KEY, clean=True)


def test_one_that_failed_keeps_the_consumer_and_the_next_round_starts_anew():
    ref_counts = ConsumerRefCounts()
    ref_counts.acquire(KEY)
    ref_counts.acquire(KEY)
    assert [ref_counts.release(KEY, clean=False), ref_counts.release(KEY, clean=True)] == [False, False]
    ref_counts.acquire(KEY)
    assert ref_counts.release(KEY, clean=True)


def test_threads_may_come_and_go_at_once():
    ref_counts = ConsumerRefCounts()

    def one(_: int) -> bool:
        ref_counts.acquire(KEY)
        return ref_counts.release(KEY, clean=True)

    ref_counts.acquire(KEY)
    with ThreadPoolExecutor(8) as pool:
        assert not any(pool.map(one, range(1_000)))
    assert ref_counts.release(KEY, clean=True)
