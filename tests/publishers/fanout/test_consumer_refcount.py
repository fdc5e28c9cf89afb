"""ConsumerHolders: who is the last one out (F8)."""

from concurrent.futures import ThreadPoolExecutor

from recordpublisher.publishers.fanout.consumer_refcount import ConsumerHolders, ConsumerKey

KEY = ConsumerKey("", "arn", "app")


def test_the_last_one_out_is_told():
    holders = ConsumerHolders()
    holders.enter(KEY)
    holders.enter(KEY)
    assert [holders.leave(KEY, clean=True), holders.leave(KEY, clean=True)] == [False, True]


def test_consumers_are_counted_apart():
    holders = ConsumerHolders()
    holders.enter(KEY)
    holders.enter(ConsumerKey("http://127.0.0.1:1", "arn", "app"))
    assert holders.leave(KEY, clean=True)


def test_one_that_failed_keeps_the_consumer_and_the_next_round_starts_anew():
    holders = ConsumerHolders()
    holders.enter(KEY)
    holders.enter(KEY)
    assert [holders.leave(KEY, clean=False), holders.leave(KEY, clean=True)] == [False, False]
    holders.enter(KEY)
    assert holders.leave(KEY, clean=True)


def test_threads_may_come_and_go_at_once():
    holders = ConsumerHolders()

    def one(_: int) -> bool:
        holders.enter(KEY)
        return holders.leave(KEY, clean=True)

    holders.enter(KEY)
    with ThreadPoolExecutor(8) as pool:
        assert not any(pool.map(one, range(1_000)))
    assert holders.leave(KEY, clean=True)
