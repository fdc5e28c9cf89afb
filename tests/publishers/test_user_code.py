"""User code: what is awaitable is awaited, what nobody would run is refused, and its errors can always be told."""

import functools
import re
import traceback
from concurrent.futures import ThreadPoolExecutor

import pytest

import recordpublisher as rp
from recordpublisher.publishers.user_code import (
    MAX_REASON,
    UserFunction,
    cause_in_user_code,
    check_user_function,
    describe_error,
    exc_info_for_log,
    refuse_unrun_results,
)


async def double(number):
    return 2 * number


class AsyncCall:
    async def __call__(self, number):
        return 2 * number


@pytest.mark.parametrize(
    "function",
    [double, AsyncCall(), functools.partial(double), lambda n: double(n), lambda n: 2 * n],  # noqa: PLW0108 - a plain function
    ids=["async", "async __call__", "partial", "returns a coroutine", "plain"],
)
async def test_the_result_is_awaited_however_it_comes(function):
    assert await UserFunction("function", function, "a function")(21) == 42


async def test_a_future_of_the_users_own_threads_is_awaited():
    with ThreadPoolExecutor(1) as pool:
        assert await UserFunction("function", lambda n: pool.submit(lambda: 2 * n), "a function")(21) == 42
        with pytest.raises(ZeroDivisionError):
            await UserFunction("function", lambda: pool.submit(lambda: 1 / 0), "a function")()


class UnshowableError(SyntaxError):
    """Python's traceback module reads `filename` of a SyntaxError, and does not expect that this fails."""

    @property
    def filename(self):
        raise RuntimeError("filename")


def test_an_error_that_python_cannot_show_is_logged_by_its_words():
    def fail():
        raise UnshowableError("x")

    with pytest.raises(UnshowableError) as raised:
        fail()
    assert repr(exc_info_for_log(raised.value)[1]) == "RuntimeError('UnshowableError: x')"


def test_an_error_that_is_its_own_cause_has_an_end():
    first, second = ValueError("a"), ValueError("b")
    first.__cause__, second.__cause__ = second, first

    assert exc_info_for_log(first) is None
    assert cause_in_user_code(first) is None


async def test_stop_iteration_in_a_thread_becomes_an_error_that_a_future_can_hold():
    def stop():
        raise StopIteration(5)

    with pytest.raises(RuntimeError, match="the function raised StopIteration: 5"):
        await UserFunction("function", stop, "a function")()


class OwnError(BaseException):
    pass


@pytest.mark.parametrize("kind", [SystemExit, OwnError, GeneratorExit])
@pytest.mark.parametrize("is_async", [True, False])
async def test_what_would_end_the_process_is_an_error_of_the_function(kind, is_async):
    def leave():
        raise kind(3)

    async def leave_later():
        leave()

    with pytest.raises(RuntimeError, match=f"the function raised {kind.__name__}: 3"):
        await UserFunction("function", leave_later if is_async else leave, "a function")()


@pytest.mark.parametrize("kind", [StopIteration, SystemExit])
async def test_an_error_that_stands_for_another_is_logged_with_the_traceback_of_that_one(kind):
    async def leave():
        raise kind

    with pytest.raises(RuntimeError) as raised:
        await UserFunction("function", leave, "a function")()
    error = raised.value.with_traceback(None)
    assert exc_info_for_log(error)[1] is error


@pytest.mark.parametrize("function", [lambda: None, lambda a, b: None, functools.partial(double, 1)])
def test_a_function_that_cannot_take_its_arguments_is_refused(function):
    with pytest.raises(rp.ConfigurationError, match=r"it cannot be called with 1 argument"):
        check_user_function("function", function, "a function", arguments=1)


@pytest.mark.parametrize("function", [double, AsyncCall(), print, lambda a, b=1: None, lambda *all: None])
def test_a_function_that_can_or_may_take_its_arguments_is_not(function):
    check_user_function("function", function, "a function", arguments=1)


@pytest.mark.parametrize("function", [AsyncCall, functools.partial(AsyncCall)])
def test_a_class_is_no_function(function):
    reason = "AsyncCall is a class; calling it would only make an object: give AsyncCall() or one of its methods"
    with pytest.raises(rp.ConfigurationError, match=re.escape(reason)):
        check_user_function("function", function, "a function")


async def test_a_generator_that_a_plain_function_returns_is_refused():
    with pytest.raises(TypeError, match="returned a generator, and none of its code has run"):
        await UserFunction("function", lambda: (number for number in "abc"), "a function")()


def test_an_async_function_is_refused_where_nobody_awaits():
    with pytest.raises(rp.ConfigurationError, match="it is async, but its result would not be awaited"):
        check_user_function("deserializer", double, "a plain function", is_plain=True)


def test_a_coroutine_among_results_is_refused():
    with pytest.raises(TypeError, match="returned a coroutine"):
        refuse_unrun_results([1, double(2), double(3)])


def test_an_error_without_text_and_one_without_an_end_can_be_told():
    class NoTextError(Exception):
        def __str__(self):
            raise RuntimeError

    assert describe_error(NoTextError()) == "NoTextError: (its __str__ raised RuntimeError)"
    assert describe_error(KeyError()) == "KeyError"
    long = describe_error(ValueError("x" * 10**6))
    assert len(long) < MAX_REASON + 100
    assert long.endswith("(1000000 characters)")

    def broken():
        raise ValueError("x" * 10**6)

    assert len(str(exc_info_for_log(raised(broken))[1])) < MAX_REASON + 100


def raised(function, *arguments):
    try:
        function(*arguments)
    except Exception as error:
        return error
    raise AssertionError


async def test_an_error_of_user_code_is_logged_with_its_traceback_from_the_users_first_line_on():
    def broken(_):
        int("boom")

    try:
        await UserFunction("function", broken, "a function")(1)
    except ValueError as raised:
        error = raised.with_traceback(raised.__traceback__.tb_next)  # as if the library had called it

    of, shown, trace = exc_info_for_log(error)
    assert (of, shown) == (ValueError, error)
    assert [frame.name for frame in traceback.extract_tb(trace)] == ["broken"]
    assert len(traceback.extract_tb(error.__traceback__)) > 1


def test_an_error_of_this_librarys_own_code_is_a_sentence():
    error = raised(refuse_unrun_results, [double(1)])

    assert exc_info_for_log(error.with_traceback(error.__traceback__.tb_next)) is None
