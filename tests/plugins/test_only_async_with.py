"""A `with` or `for` of the wrong kind is an error that says what to write."""

import pytest

import recordpublisher as rp
from recordpublisher.testing import run_virtual

HERE = {"aws.region": "eu-west-1"}


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (lambda: rp.KinesisSink("out", HERE), "KinesisSink needs 'async with', .*'with rp.Producer"),
        (lambda: rp.DataFetcher("in", HERE, sink=rp.MemorySink()), "DataFetcher needs 'async with', .*rp.consume"),
        (lambda: rp.export_metrics({}), "export_metrics.* needs 'async with'"),
    ],
)
def test_a_plain_with_names_async_with(made, words):
    with pytest.raises(TypeError, match=words), made():
        pass


def test_an_async_with_of_a_producer_names_with():
    async def use():
        async with rp.Producer("out", HERE):
            pass

    with pytest.raises(TypeError, match=r"Producer needs 'with', not 'async with'.* rp.KinesisSink"):
        run_virtual(use())


def test_a_plain_for_over_batches_names_async_for_and_consume():
    with pytest.raises(TypeError, match=r"rp.stream needs 'async for'.* rp.consume"):
        for _ in rp.stream("in", HERE):
            pass
