"""All exercises by number."""

from functools import cache

from heedful.course import session_1, session_2, session_3, session_4, session_5
from heedful.course.exercise import Exercise
from heedful.errors import ConfigError, did_you_mean


@cache
def exercises() -> dict[str, Exercise]:
    """Return all exercises in their order."""
    sessions = (session_1, session_2, session_3, session_4, session_5)
    listed = [exercise for session in sessions for exercise in session.SESSION]
    return {exercise.number: exercise for exercise in sorted(listed, key=lambda one: one.number)}


def find(number: str) -> Exercise:
    """Return the exercise of a number such as 1.2."""
    if number not in exercises():
        hint = did_you_mean(number, exercises()) or "the numbers are 1.1 to 5.6"
        raise ConfigError("course", f"there is no exercise {number}", hint)
    return exercises()[number]
