import io
import json
import logging

import pytest

from headrace.observe.logs import formatter

FORGED = "model 'a\n2026-01-01 INFO headrace: all is well\r\x1b[2J'"


@pytest.fixture
def written():
    """A function that logs through a formatter and returns what is written."""

    def write(as_json, *args, **more):
        stream = io.StringIO()
        handler = logging.StreamHandler(stream)
        handler.setFormatter(formatter(as_json))
        logger = logging.Logger("headrace.test")
        logger.addHandler(handler)
        logger.error(*args, **more)
        return stream.getvalue()

    return write


def test_a_text_record_is_one_line_whatever_is_in_it(written):
    text = written(False, "bad: %s", FORGED)
    assert text.count("\n") == 1 and text.endswith("\n")
    assert "\r" not in text and "\x1b" not in text
    assert "a\\n2026-01-01" in text


def test_a_json_record_is_one_line_and_keeps_the_text(written):
    text = written(True, "bad: %s", FORGED)
    assert text.count("\n") == 1
    entry = json.loads(text)
    assert entry["message"] == f"bad: {FORGED}"
    assert (entry["level"], entry["logger"]) == ("error", "headrace.test")


def test_an_exception_stays_on_its_line(written):
    try:
        raise ValueError(FORGED)
    except ValueError:
        for as_json in (False, True):
            text = written(as_json, "it failed", exc_info=True)
            assert text.count("\n") == 1
            assert "ValueError" in text
