"""ConsumerRefCounts: which user of a consumer is the last one (F8)."""

from concurrent.futures import ThreadPoolExecutor

from recordpublisher.publishers.fanout.registration.consumer_registrar import ConsumerKey, ConsumerRefCounts

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
