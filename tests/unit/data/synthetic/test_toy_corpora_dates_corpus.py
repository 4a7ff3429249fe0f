"""Dates in many styles, read back by another reader."""

import re
from datetime import date, datetime
from itertools import islice

from heedful.data.synthetic import get_corpus
from heedful.data.synthetic.toy_corpora import FIRST_DAY, LAST_DAY, STYLES, format_date

FORMATS = [
    "%d %B %Y",
    "%B %d, %Y",
    "%A, %d %B %Y",
    "%A, %B %d, %Y",
    "%a %d %b %Y",
    "%d-%b-%Y",
    "%b %d, %Y",
    "%Y, %B %d",
]


def said(day):
    return [format_date(day, style) for style in STYLES]


def read(text):
    """Read a date with the standard library, after ordinals are made plain numbers."""
    plain = re.sub(r"(\d)(st|nd|rd|th)\b", r"\1", text)
    for form in FORMATS:
        try:
            return datetime.strptime(plain, form).date()
        except ValueError:
            continue
    return None


def test_date_styles():
    assert said(date(1987, 3, 3)) == [
        "3 March 1987",
        "March 3, 1987",
        "3rd March 1987",
        "March 3rd, 1987",
        "the third of March 1987",
        "March the third, 1987",
        "Tuesday, 3 March 1987",
        "Tuesday, March 3rd, 1987",
        "Tue 3 Mar 1987",
        "03-Mar-1987",
        "Mar 3, 1987",
        "1987, March 3",
    ]


def test_numeric_ordinals_have_correct_suffixes():
    days = (1, 2, 11, 12, 13, 21, 22, 23, 31)
    numbered = [said(date(2000, 1, day))[2].split()[0] for day in days]
    assert " ".join(numbered) == "1st 2nd 11th 12th 13th 21st 22nd 23rd 31st"


def test_ordinal_words_are_correct():
    worded = [said(date(2000, 1, day))[4] for day in (12, 20, 23, 30, 31)]
    assert worded == [
        f"the {word} of January 2000"
        for word in ("twelfth", "twentieth", "twenty-third", "thirtieth", "thirty-first")
    ]


def test_leap_day_is_valid():
    assert said(date(2000, 2, 29))[6] == "Tuesday, 29 February 2000"


def test_dates_parse_with_strptime():
    num_read = 0
    for source, target in islice(get_corpus("dates").pairs("train"), 4000):
        day = date.fromisoformat(target)
        assert FIRST_DAY <= day <= LAST_DAY
        found = read(source)
        if found is None:  # the two styles with the day in words
            assert source in said(day)
        else:
            num_read += 1
            assert found == day
            if source.split(",")[0].endswith("day"):
                assert source.startswith(day.strftime("%A"))
    assert num_read > 3000


def test_date_texts_are_unambiguous():
    days = [date(1999, month, day) for month in range(1, 13) for day in range(1, 29)]
    texts = [text for day in days for text in said(day)]
    repeated = len(texts) - len(set(texts))
    assert repeated == 28  # "May" is its own abbreviation: "May 3, 1999" comes twice for one day
