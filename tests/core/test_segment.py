import re
from pathlib import Path

import pytest

from headrace.core.segment import FAILURE_NAMES, MAX_SLOTS, SIZES, Segment

DOCUMENT = Path(__file__).parents[2] / "docs" / "shared-memory.md"
ROW = re.compile(r"^\| ([a-z0-9 ]+) \| (\d+) \|$", re.MULTILINE)


def test_the_drawing_agrees_with_the_sizes():
    text = DOCUMENT.read_text()
    layout = Segment.create(2, 64 << 20).layout()
    written = {name: int(size) for name, size in ROW.findall(text)}
    assert written == {name: size for name, (_, size) in layout.items()} | SIZES
    drawn = {name: int(at) for at, name in re.findall(r"^ (\d+) +([a-z]+(?: \w+)?)", text, re.M)}
    assert drawn == {
        "header": layout["header"][0],
        "rows": layout["rows"][0],
        "insertion counters": layout["insertion counters"][0],
        "process 0": layout["process 0"][0],
    }


def test_parts_follow_each_other_without_touching():
    end = 0
    for at, size in Segment.create(3, 1 << 16).layout().values():
        assert at >= end
        end = at + size


def test_another_mapping_sees_the_same_and_a_foreign_file_is_refused(tmp_path):
    made = Segment.create(2, 0)
    other = Segment.attach(made.fd)
    made.write_row(7, eligible=True, generation=3, max_concurrency=5, weight=0.5)
    row = other.row(7)
    assert (row["eligible"], row["generation"], row["weight"]) == (True, 3, 0.5)
    assert made.publish(b"one") == 1 and other.blob() == (1, b"one")
    foreign = tmp_path / "foreign"
    foreign.write_bytes(bytes(1 << 16))
    with foreign.open("r+b") as f, pytest.raises(ValueError):
        Segment.attach(f.fileno())


def test_a_cleared_row_takes_no_requests_and_keeps_its_generation():
    segment = Segment.create(1, 0)
    segment.write_row(1, eligible=True, generation=3, max_concurrency=5)
    segment.clear_row(1)
    row = segment.row(1)
    assert (row["used"], row["eligible"], row["generation"]) == (False, False, 3)


def test_slots_and_processes_have_limits():
    with pytest.raises(ValueError):
        Segment.create(0, 0)
    with pytest.raises(ValueError):
        Segment.create(65, 0)
    segment = Segment.create(1, 0)
    for call in (segment.row, segment.cell, segment.clear_row, segment.requests):
        for slot in (-1, MAX_SLOTS):
            with pytest.raises(IndexError):
                call(slot)
    with pytest.raises(IndexError):
        segment.store_prefixes(MAX_SLOTS, [], 1)
    with pytest.raises(IndexError):
        segment.remove_prefixes(-1, [])
    with pytest.raises(ValueError):
        segment.publish(bytes((16 << 20) + 1))


def test_failures_have_the_names_of_the_enumeration():
    text = (Path(__file__).parents[2] / "csrc" / "fleet.h").read_text()
    enum = re.search(r"enum failure \{(.*?)\};", text, re.DOTALL).group(1)
    assert len(re.findall(r"FAILURE_\w+,", enum)) == len(FAILURE_NAMES)
