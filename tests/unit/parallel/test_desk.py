import threading
from itertools import count

import pytest

from heedful.errors import DataError
from heedful.parallel.desk import Desk
from heedful.parallel.worker import Done, Failed


def answer_backwards(desk, num_tasks):
    taken = [desk.take() for _ in range(num_tasks)]
    for each in reversed(taken):
        desk.put(each.number, Done(each.task * 10))


def test_answers_come_in_the_order_of_tasks_whoever_was_first():
    desk = Desk([3, 1, 2], most_open=3)
    answer_backwards(desk, 3)
    threading.Thread(target=desk.take, daemon=True).start()  # finds that there are no more
    assert list(desk.answers()) == [30, 10, 20]


def test_nothing_to_do_gives_no_answers():
    desk = Desk([], most_open=2)
    assert desk.take() is None
    assert list(desk.answers()) == []


def test_no_more_tasks_are_open_than_allowed():
    seen = []
    desk = Desk((seen.append(number) or number for number in count()), most_open=2)
    answers = desk.answers()
    first, second = desk.take(), desk.take()
    waiting = threading.Thread(target=desk.take, daemon=True)
    waiting.start()
    waiting.join(0.1)
    assert waiting.is_alive()
    assert seen == [0, 1]
    desk.put(second.number, Done("second"))
    waiting.join(0.1)
    assert waiting.is_alive(), "an answer that cannot be given yet makes no room"
    desk.put(first.number, Done("first"))
    assert next(answers) == "first"
    assert next(answers) == "second"  # asking again says that the first was used
    waiting.join(10)
    assert seen == [0, 1, 2]


def test_what_went_wrong_with_a_task_is_raised_in_its_turn():
    desk = Desk("ab", most_open=2)
    desk.take(), desk.take()
    desk.put(1, Failed(DataError, ("line 2", "too long", "split it")))
    desk.put(0, Done("first"))
    answers = desk.answers()
    assert next(answers) == "first"
    with pytest.raises(DataError, match="line 2: too long\n  split it"):
        next(answers)


def test_a_task_that_cannot_be_had_is_an_error_after_the_answers_before_it():
    def tasks():
        yield "a"
        raise DataError("line 2", "not UTF-8", "convert it")

    desk = Desk(tasks(), most_open=4)
    taken = desk.take()
    assert desk.take() is None
    desk.put(taken.number, Done("first"))
    answers = desk.answers()
    assert next(answers) == "first"
    with pytest.raises(DataError, match="line 2: not UTF-8"):
        next(answers)


def test_a_failure_of_the_whole_does_not_wait_for_what_is_under_way():
    desk = Desk("ab", most_open=2)
    desk.take()
    desk.fail(RuntimeError("lost"))
    with pytest.raises(RuntimeError, match="lost"):
        next(desk.answers())


def test_closing_lets_everybody_go_who_waits_for_room():
    desk = Desk(count(), most_open=1)
    desk.take()
    waiting = [threading.Thread(target=desk.take, daemon=True) for _ in range(3)]
    for thread in waiting:
        thread.start()
    desk.close()
    for thread in waiting:
        thread.join(10)
    assert not any(thread.is_alive() for thread in waiting)
