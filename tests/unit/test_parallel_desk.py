import threading
from itertools import count

import pytest

from heedful.errors import DataError
from heedful.parallel import OrderedTaskQueue, TaskFailure, TaskSuccess


def answer_backwards(desk, num_tasks):
    taken = [desk.get_task() for _ in range(num_tasks)]
    for each in reversed(taken):
        desk.put_result(each.number, TaskSuccess(each.task * 10))


def test_answers_come_in_the_order_of_tasks_whoever_was_first():
    desk = OrderedTaskQueue([3, 1, 2], max_pending=3)
    answer_backwards(desk, 3)
    threading.Thread(target=desk.get_task, daemon=True).start()  # finds that there are no more
    assert list(desk.results()) == [30, 10, 20]


def test_nothing_to_do_gives_no_answers():
    desk = OrderedTaskQueue([], max_pending=2)
    assert desk.get_task() is None
    assert list(desk.results()) == []


def test_no_more_tasks_are_open_than_allowed():
    seen = []
    desk = OrderedTaskQueue((seen.append(number) or number for number in count()), max_pending=2)
    answers = desk.results()
    first, second = desk.get_task(), desk.get_task()
    waiting = threading.Thread(target=desk.get_task, daemon=True)
    waiting.start()
    waiting.join(0.1)
    assert waiting.is_alive()
    assert seen == [0, 1]
    desk.put_result(second.task_index, TaskSuccess("second"))
    waiting.join(0.1)
    assert waiting.is_alive(), "an answer that cannot be given yet makes no room"
    desk.put_result(first.task_index, TaskSuccess("first"))
    assert next(answers) == "first"
    assert next(answers) == "second"  # asking again says that the first was used
    waiting.join(10)
    assert seen == [0, 1, 2]


def test_what_went_wrong_with_a_task_is_raised_in_its_turn():
    desk = OrderedTaskQueue("ab", max_pending=2)
    desk.get_task(), desk.get_task()
    desk.put_result(1, TaskFailure(DataError, ("line 2", "too long", "split it")))
    desk.put_result(0, TaskSuccess("first"))
    answers = desk.results()
    assert next(answers) == "first"
    with pytest.raises(DataError, match="line 2: too long\n  split it"):
        next(answers)


def test_a_task_that_cannot_be_had_is_an_error_after_the_answers_before_it():
    def tasks():
        yield "a"
        raise DataError("line 2", "not UTF-8", "convert it")

    desk = OrderedTaskQueue(tasks(), max_pending=4)
    taken = desk.get_task()
    assert desk.get_task() is None
    desk.put_result(taken.task_index, TaskSuccess("first"))
    answers = desk.results()
    assert next(answers) == "first"
    with pytest.raises(DataError, match="line 2: not UTF-8"):
        next(answers)


def test_a_failure_of_the_whole_does_not_wait_for_what_is_under_way():
    desk = OrderedTaskQueue("ab", max_pending=2)
    desk.get_task()
    desk.fail(RuntimeError("lost"))
    with pytest.raises(RuntimeError, match="lost"):
        next(desk.results())


def test_closing_lets_everybody_go_who_waits_for_room():
    desk = OrderedTaskQueue(count(), max_pending=1)
    desk.get_task()
    waiting = [threading.Thread(target=desk.get_task, daemon=True) for _ in range(3)]
    for thread in waiting:
        thread.start()
    desk.close()
    for thread in waiting:
        thread.join(10)
    assert not any(thread.is_alive() for thread in waiting)
