"""Heads and chunked bodies against plain Python oracles."""

import re

from hypothesis import example, given
from hypothesis import strategies as st

from headrace.proxy.inspect import ChunkedBody, read_request

TOKEN = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]")
NAMES = st.sampled_from([b"Host", b"X-A", b"content-length", b"Connection", b"transfer-encoding"])
VALUES = st.sampled_from([b"", b"1", b"12", b"-1", b"1 2", b"chunked", b"close", b"gzip, chunked"])
LINES = st.lists(
    st.one_of(
        st.tuples(NAMES, st.sampled_from([b":", b": ", b" :", b":\t"]), VALUES).map(b"".join),
        st.binary(max_size=12),
    ),
    max_size=6,
)


def oracle_fields(lines):
    """[(name, value)] of header lines, or None where two readers might differ."""
    fields = []
    for line in lines:
        name, colon, value = line.partition(b":")
        if not colon or not name or re.search(rb"[\r\n\0]", line):
            return None
        if not TOKEN.match(name[:1]) or not TOKEN.match(name[-1:]):
            return None
        fields.append((name.lower(), value.strip(b" \t")))
    return fields


def oracle(lines):
    """(content length, chunked), or None if the head must be refused."""
    fields = oracle_fields(lines)
    if fields is None or [name for name, _ in fields].count(b"host") != 1:
        return None
    lengths = [value for name, value in fields if name == b"content-length"]
    codings = [value for name, value in fields if name == b"transfer-encoding"]
    if len(lengths) + len(codings) > 1 or any(v.lower() != b"chunked" for v in codings):
        return None
    if any(not re.fullmatch(rb"[0-9]{1,18}", v) for v in lengths):
        return None
    return int(lengths[0]) if lengths else -1, bool(codings)


@given(LINES)
@example([b"Host: g", b"content-length: 5"])
@example([b"Host: g", b" X: folded"])
def test_heads_are_read_as_the_oracle_reads_them(lines):
    head = b"POST /x HTTP/1.1\r\n" + b"".join(line + b"\r\n" for line in lines) + b"\r\n"
    if b"\r\n\r\n" in head[:-4]:
        return  # two heads: the caller cuts at the first empty line
    seen, wanted = read_request(head), oracle(lines)
    if wanted is None:
        assert seen is None
    else:
        assert seen is not None
        assert (seen["content_length"], seen["chunked"]) == wanted


CHUNKS = st.lists(st.binary(min_size=1, max_size=40), max_size=5)


@given(CHUNKS, st.binary(max_size=20), st.data())
def test_a_chunked_body_is_taken_to_its_end_however_it_is_cut(chunks, behind, data):
    wire = b"".join(b"%x\r\n%s\r\n" % (len(c), c) for c in chunks) + b"0\r\n\r\n"
    cuts = sorted(data.draw(st.lists(st.integers(0, len(wire)), max_size=4)))
    body, taken = ChunkedBody(), 0
    for start, end in zip([0, *cuts], [*cuts, len(wire) + len(behind)], strict=True):
        taken += body.feed((wire + behind)[start:end])
    assert (body.payload, body.done, body.bad, taken) == (b"".join(chunks), True, False, len(wire))


@given(CHUNKS, st.integers(0, 300))
def test_a_cut_body_can_be_completed(chunks, cut):
    wire = b"".join(b"%x\r\n%s\r\n" % (len(c), c) for c in chunks)
    body = ChunkedBody()
    body.feed(wire[:cut])
    before, newlines, after = body.closing()
    body.feed(before + b"\n" * newlines + after + b"0\r\n\r\n")
    assert body.done
    assert body.payload.rstrip(b"\n").startswith(b"".join(chunks)[:0])
    assert b"".join(chunks).startswith(body.payload[: len(body.payload) - newlines])


@given(st.binary(max_size=60))
def test_any_bytes_are_taken_or_called_bad(data):
    body = ChunkedBody()
    taken = body.feed(data)
    assert body.done or body.bad or taken == len(data)
