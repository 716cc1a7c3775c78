"""Items made ahead by a thread: order, room, errors, and leaving early."""

import threading

import pytest

from zoerefine.data.channel import Channel


def count_to(end, seen):
    def produce(channel):
        for number in range(end):
            if not channel.put(number):
                return
            seen.append(number)

    return produce


def test_everything_comes_in_order_and_no_more_than_the_room_is_made_ahead():
    seen = []
    for number in Channel(count_to(50, seen), room=2):
        assert len(seen) <= number + 1 + 2 + 1  # taken, waiting, and the one just put
    assert seen == list(range(50))


def test_the_threads_error_is_raised_after_what_came_before_it():
    def produce(channel):
        channel.put(1)
        raise ZeroDivisionError("in the thread")

    items = iter(Channel(produce, room=2))
    assert next(items) == 1
    with pytest.raises(ZeroDivisionError, match="in the thread"):
        next(items)


def test_leaving_early_ends_the_thread_that_waits_for_room():
    before = threading.active_count()
    items = iter(Channel(count_to(10**9, []), room=1))
    next(items)
    items.close()
    assert threading.active_count() == before
