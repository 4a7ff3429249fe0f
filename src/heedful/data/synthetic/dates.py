"""Dates: the many ways to write a day, and the one that sorts.

Every style says which number is the day and which the month, and writes the year in full, so
each text means one day. Years run from 1900 to 2099.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import date, timedelta
from random import Random

from heedful.data.records import Pair
from heedful.data.synthetic.corpus import Corpus

FIRST_DAY = date(1900, 1, 1)
LAST_DAY = date(2099, 12, 31)
_NUM_DAYS = (LAST_DAY - FIRST_DAY).days + 1

_WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_MONTHS = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)
_ONES = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth")
_TEENS = (
    "tenth",
    "eleventh",
    "twelfth",
    "thirteenth",
    "fourteenth",
    "fifteenth",
    "sixteenth",
    "seventeenth",
    "eighteenth",
    "nineteenth",
)
_ORDINALS = (
    *_ONES,
    *_TEENS,
    "twentieth",
    *(f"twenty-{each}" for each in _ONES),
    "thirtieth",
    "thirty-first",
)


def _weekday(day: date) -> str:
    return _WEEKDAYS[day.weekday()]


def _month(day: date) -> str:
    return _MONTHS[day.month - 1]


def _ordinal(day: date) -> str:
    return _ORDINALS[day.day - 1]


def _numbered(day: date) -> str:
    ending = {1: "st", 2: "nd", 3: "rd"}.get(day.day % 10, "th")
    return f"{day.day}{'th' if day.day in (11, 12, 13) else ending}"


STYLES: tuple[Callable[[date], str], ...] = (
    lambda day: f"{day.day} {_month(day)} {day.year}",
    lambda day: f"{_month(day)} {day.day}, {day.year}",
    lambda day: f"{_numbered(day)} {_month(day)} {day.year}",
    lambda day: f"{_month(day)} {_numbered(day)}, {day.year}",
    lambda day: f"the {_ordinal(day)} of {_month(day)} {day.year}",
    lambda day: f"{_month(day)} the {_ordinal(day)}, {day.year}",
    lambda day: f"{_weekday(day)}, {day.day} {_month(day)} {day.year}",
    lambda day: f"{_weekday(day)}, {_month(day)} {_numbered(day)}, {day.year}",
    lambda day: f"{_weekday(day)[:3]} {day.day} {_month(day)[:3]} {day.year}",
    lambda day: f"{day.day:02}-{_month(day)[:3]}-{day.year}",
    lambda day: f"{_month(day)[:3]} {day.day}, {day.year}",
    lambda day: f"{day.year}, {_month(day)} {day.day}",
)


class DatesCorpus(Corpus):
    """Written dates and their ISO 8601 form."""

    name = "dates"
    description = "dates in a dozen styles, and their ISO 8601 form"

    def draw(self, split: str, random: Random) -> Iterator[Pair]:
        """Draw days and styles."""
        while True:
            day = FIRST_DAY + timedelta(days=random.randrange(_NUM_DAYS))
            yield Pair(random.choice(STYLES)(day), day.isoformat())
