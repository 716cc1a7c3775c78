"""A background iterator: order, capacity, errors, and leaving early."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from zoerefine.base.threads import BackgroundIterator, produced_ahead, submitted_ahead


def count_to(end, seen):
    def produce(items):
        for number in range(end):
            if not items.put(number):
                return
            seen.append(number)

    return produce


def test_items_come_in_order_and_no_more_than_the_capacity_ahead():
    seen = []
    for number in BackgroundIterator(count_to(50, seen), capacity=2):
        assert len(seen) <= number + 1 + 2 + 1  # consumed, waiting, and the one just put
    assert seen == list(range(50))
    seen = []
    for number in produced_ahead((seen.append(n) or n for n in range(50)), 2):
        assert len(seen) <= number + 1 + 2 + 2  # consumed, waiting, one that waits for room, next
    assert seen == list(range(50))


def test_the_threads_error_is_raised_after_the_items_before_it():
    def produce(items):
        items.put(1)
        raise ZeroDivisionError("in the thread")

    items = iter(BackgroundIterator(produce, capacity=2))
    assert next(items) == 1
    with pytest.raises(ZeroDivisionError, match="in the thread"):
        next(items)


def test_leaving_early_ends_a_thread_that_waits_to_put():
    before = set(threading.enumerate())
    items = iter(BackgroundIterator(count_to(10**9, []), capacity=1))
    next(items)
    assert set(threading.enumerate()) - before
    items.close()
    assert not set(threading.enumerate()) - before


def test_results_come_in_order_and_no_more_are_submitted_than_asked_for():
    submitted = []
    with ThreadPoolExecutor(4) as pool:

        def submit(number):
            submitted.append(number)
            return pool.submit(lambda: 2 * number)

        for number, doubled in enumerate(submitted_ahead(range(50), submit, 3)):
            assert doubled == 2 * number
            assert len(submitted) == min(50, number + 1 + 3)
