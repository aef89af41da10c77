import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from headrace.core.promtext import Scanner, read_number, unescape

FIXTURES = Path(__file__).parent.parent / "fixtures"
PAGES = sorted(FIXTURES.glob("*metrics*.txt")) + sorted(FIXTURES.glob("dcgm*.txt"))
UNREADABLE = "ERROR - FAILED TO CONVERT TO STRING"


def oracle(page: str):
    """Every sample by prometheus_client, which cannot read broken lines and renames counters."""
    lines = (x for x in page.split("\n") if UNREADABLE not in x and not x.startswith("#"))
    clean = "\n".join(lines)
    for family in text_string_to_metric_families(clean):
        for sample in family.samples:
            yield sample.name, sample.value, dict(sample.labels)


def same(left, right):
    assert [(name, labels) for name, _, labels in left] == [(n, lb) for n, _, lb in right]
    for (_, a, _), (_, b, _) in zip(left, right, strict=True):
        assert (math.isnan(a) and math.isnan(b)) or a == b or math.isclose(a, b, rel_tol=3e-16)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_real_pages_read_as_prometheus_client_reads_them(path):
    page = path.read_text()
    expected = list(oracle(page))
    names = sorted({name for name, _, _ in expected})
    labels = sorted({label for _, _, own in expected for label in own})
    dropped = 0
    for first in range(0, len(names), 100):
        wanted = names[first : first + 100]
        samples, broken = Scanner(wanted, labels).scan(page.encode())
        dropped += broken
        same(samples, [s for s in expected if s[0] in wanted])
    assert dropped == page.count(UNREADABLE)
    assert expected


NAME = st.text("ab_:", min_size=1, max_size=20)
LABEL_NAME = st.text("ab_", min_size=1, max_size=8)
TEXT = st.text('ab ,{}="\\\n#é語', max_size=12)
BLANK = st.sampled_from(["", " ", "\t", "  "])
VALUE = st.floats() | st.integers(0, 2**64).map(float)


def escape(text):
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


@st.composite
def lines(draw):
    name, value = draw(NAME), draw(VALUE)
    labels = draw(st.dictionaries(LABEL_NAME, TEXT, max_size=3))
    inner = ",".join(
        f'{draw(BLANK)}{key}{draw(BLANK)}={draw(BLANK)}"{escape(text)}"{draw(BLANK)}'
        for key, text in labels.items()
    )
    block = f"{{{inner}{draw(st.sampled_from(['', ','])) if labels else ''}}}" if labels else ""
    tail = draw(st.sampled_from(["", " 1795952876812", ' # {id="x"} 0.4', "\r"]))
    return f"{draw(BLANK)}{name}{draw(BLANK)}{block} {value!r}{tail}", (name, value, labels)


@given(st.lists(lines(), max_size=12), st.booleans(), st.data())
def test_any_well_formed_page_gives_back_what_was_written(made, newline_at_end, data):
    page = "\n".join(line for line, _ in made) + ("\n" if newline_at_end else "")
    names = sorted({sample[0] for _, sample in made})
    wanted = data.draw(st.lists(st.sampled_from(names), unique=True)) if names else []
    labels = {label for _, sample in made for label in sample[2]}
    samples, dropped = Scanner(wanted, labels).scan(page.encode())
    same(samples, [sample for _, sample in made if sample[0] in wanted])
    assert dropped == 0


@given(st.binary(max_size=200))
def test_any_bytes_are_survived(noise):
    page = b"up 1\n" + noise.replace(b"up", b"") + b"\nup 2\n"
    samples, dropped = Scanner(["up"]).scan(page)
    assert [value for _, value, _ in samples] == [1, 2]
    assert dropped == 0


@given(st.text('up{a="b\\} 1,#', max_size=40))
def test_every_wanted_line_is_read_or_counted(text):
    samples, dropped = Scanner(["up"]).scan(text.encode())
    head = text.lstrip(" ")
    wanted = head == "up" or head.startswith(("up{", "up "))
    assert len(samples) + dropped == wanted


@given(st.floats(allow_nan=False))
def test_numbers_are_right_to_one_unit_in_the_last_place(value):
    read = read_number(repr(value).encode())
    assert read == value or abs(read - value) <= math.ulp(value)


@pytest.mark.parametrize("text", [b"", b"-", b"1 ", b"zero", b"1e", b"0x10", b"1_000", b"--1"])
def test_what_is_no_number_is_none(text):
    assert read_number(text) is None


@given(TEXT)
def test_unescape_undoes_escape(text):
    assert unescape(escape(text)) == text


def test_unknown_escapes_stay():
    assert unescape("a\\tb\\") == "a\\tb\\"


def test_only_asked_labels_are_kept_and_bad_utf8_is_replaced():
    page = b'up{a="\xff",b="2"} 1\n'
    assert Scanner(["up"], ["a"]).scan(page) == ([("up", 1.0, {"a": "�"})], 0)


def test_samples_beyond_the_capacity_count_as_dropped():
    samples, dropped = Scanner(["up"], capacity=2).scan(b"up 1\nup 2\nup 3\n")
    assert (len(samples), dropped) == (2, 1)


@pytest.mark.parametrize("names", [[""], ["up", "up"], ["x" * 64], [f"n{i}" for i in range(129)]])
def test_impossible_tables_are_refused(names):
    with pytest.raises(ValueError, match="wanted series"):
        Scanner(names)
