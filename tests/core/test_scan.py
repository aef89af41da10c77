import json
import string

import orjson
import pytest
import scan_oracle as oracle
from hypothesis import example, given
from hypothesis import strategies as st

from headrace.core.scan import FIELDS, BodyScan, prefix_root

TEXT = st.text(st.characters(codec="utf-8"), max_size=60)
ASCII_TEXT = st.text(string.printable, max_size=80)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)
FIELD = st.sampled_from(FIELDS)
DOCUMENT = st.dictionaries(FIELD | TEXT, JSON, max_size=6)
PART = st.one_of(
    st.builds(lambda text: {"type": "text", "text": text}, TEXT),
    st.builds(lambda url: {"type": "image_url", "image_url": {"url": url}}, TEXT),
    st.builds(lambda data: {"type": "input_audio", "input_audio": {"data": data}}, TEXT),
)
TURN = st.fixed_dictionaries(
    {"role": st.sampled_from(["system", "user", "assistant", "tool"])},
    optional={
        "content": st.none() | TEXT | ASCII_TEXT | st.lists(PART, max_size=4),
        "tool_calls": st.lists(st.fixed_dictionaries({"id": TEXT, "name": TEXT}), max_size=2),
    },
)
CHAT = st.fixed_dictionaries(
    {"model": TEXT, "messages": st.lists(TURN, max_size=6)},
    optional={"tools": st.lists(JSON, max_size=2), "system": TEXT, "stream": st.booleans()},
)
BATCH = st.fixed_dictionaries(
    {},
    optional={
        "prompt": TEXT
        | st.lists(TEXT, max_size=3)
        | st.lists(st.integers(0, 200_000), max_size=200)
        | st.lists(st.lists(st.integers(0, 200_000), max_size=80), max_size=3),
        "input": TEXT | st.lists(TURN | TEXT, max_size=4),
        "query": TEXT,
        "documents": st.lists(TEXT, max_size=4),
    },
)


def encode(document, escape: bool, spaced: bool) -> bytes:
    separators = (" , ", " : ") if spaced else (",", ":")
    return json.dumps(document, ensure_ascii=escape, separators=separators).encode()


def scan_or_none(body: bytes):
    try:
        return BodyScan(body)
    except ValueError:
        return None


REFUSED = {
    "empty": b"",
    "spaces": b" \n",
    "not json": b"not json",
    "list": b"[]",
    "string": b'"x"',
    "null": b"null",
    "UTF-16 mark": b"\xff\xfe",
    "byte order mark": b"\xef\xbb\xbf{}",
    "truncated": b'{"model":"m"',
    "truncated in an escape": b'{"model":"\\u12',
    "two documents": b"{} {}",
    "NUL after it": b"{}\0",
    "comma at the end": b'{"a":1,}',
    "comma at the end of a list": b'{"a":[1,]}',
    "no colon": b'{"a" 1}',
    "unquoted key": b"{a:1}",
    "single quotes": b"{'a':1}",
    "NaN": b'{"a":NaN}',
    "Infinity": b'{"a":-Infinity}',
    "leading zero": b'{"a":01}',
    "plus": b'{"a":+1}',
    "no digit after the point": b'{"a":1.}',
    "no digit in the exponent": b'{"a":1e+}',
    "lone minus": b'{"a":-}',
    "control character in a string": b'{"a":"\n"}',
    "unknown escape": b'{"a":"\\x41"}',
    "bad hex": b'{"a":"\\u12g4"}',
    "overlong UTF-8": b'{"a":"\xc0\xaf"}',
    "overlong three bytes": b'{"a":"\xe0\x80\xaf"}',
    "UTF-8 surrogate": b'{"a":"\xed\xa0\x80"}',
    "beyond Unicode": b'{"a":"\xf4\x90\x80\x80"}',
    "cut UTF-8": b'{"a":"\xe4\xb8"}',
    "literal prefix": b'{"a":tru}',
    "closed by the wrong bracket": b'{"a":[1}',
}


@pytest.mark.parametrize("body", REFUSED.values(), ids=REFUSED.keys())
def test_what_is_no_json_object_is_refused(body):
    with pytest.raises(ValueError):
        BodyScan(body)
    assert not oracle.accepts(body)


@pytest.mark.parametrize(
    "value",
    [b'"\\ud83d"', b'"\\ude00\\ud83d x"', b"1e400", b"-1e999", b"9" * 30, b"9" * 400],
)
def test_what_only_orjson_cannot_hold_is_accepted(value):
    scan = BodyScan(b'{"model":"m","seed":%b}' % value)
    assert scan.text("model") == b"m"


@pytest.mark.parametrize("depth", [1023, 1024, 1025, 200_000])
@pytest.mark.parametrize("opening, closing", [(b"[", b"]"), (b'{"a":', b"}")])
def test_depth_limit_is_that_of_orjson(depth, opening, closing):
    inner = depth - 1
    body = b'{"x":' + opening * inner + b"0" + closing * inner + b"}"
    try:
        orjson.loads(body)
        accepted = True
    except orjson.JSONDecodeError:
        accepted = False
    assert (scan_or_none(body) is not None) == accepted == (depth <= 1024)


@given(st.dictionaries(FIELD | TEXT, JSON, max_size=6), st.booleans(), st.booleans())
def test_every_valid_object_is_accepted(document, escape, spaced):
    BodyScan(encode(document, escape, spaced))


@given(DOCUMENT | CHAT, st.booleans(), st.data())
def test_a_mutated_body_is_judged_as_by_the_reference_parsers(document, escape, data):
    body = bytearray(encode(document, escape, False))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(body)))
        size = data.draw(st.integers(0, 3))
        junk = data.draw(
            st.binary(max_size=3) | st.sampled_from([b'"', b"\\", b"{", b"]", b",", b"\\u", b"-"])
        )
        body[at : at + size] = junk
    verdict = scan_or_none(bytes(body)) is not None
    assert verdict == oracle.accepts(bytes(body))
    if verdict:
        assert oracle.beyond_orjson(bytes(body)) or isinstance(orjson.loads(bytes(body)), dict)


@given(DOCUMENT, st.booleans(), st.booleans())
def test_fields_are_found_where_they_stand(document, escape, spaced):
    body = encode(document, escape, spaced)
    scan = BodyScan(body)
    for field in FIELDS:
        if field == "include_usage":
            continue
        if field not in document:
            assert scan.kind(field) == "absent"
            continue
        start, end = scan.span(field)
        assert json.loads(body[start:end]) == document[field]
        if isinstance(document[field], str):
            assert scan.text(field) == document[field].encode()


@pytest.mark.parametrize("key", ["model", "mod\\u0065l", "\\u006d\\u006f\\u0064\\u0065\\u006c"])
def test_a_key_written_with_escapes_counts(key):
    assert BodyScan(b'{"%b":"a"}' % key.encode()).text("model") == b"a"


def test_the_last_of_equal_keys_wins():
    body = b'{"model":"a","n":2,"stream":true,"model":"b","mod\\u0065l":"c","n":3,"stream":false}'
    scan = BodyScan(body)
    assert (scan.text("model"), scan.n, scan.kind("stream")) == (b"c", 3, "false")


def test_the_last_of_equal_prompts_is_the_only_one_counted():
    twice = b'{"messages":[{"role":"u","content":"a b c"}],"messages":[{"content":"xyz"}],"n":1}'
    once = b'{"messages":[{"content":"xyz"}],"n":1}'
    assert BodyScan(twice).counts == BodyScan(once).counts
    assert BodyScan(twice).messages == 1


def test_stream_options_tell_whether_usage_is_asked_for():
    body = b'{"stream":true,"stream_options":{"a":1,"include_usage":true,"include_usage":false}}'
    scan = BodyScan(body)
    assert scan.kind("stream_options") == "object"
    assert scan.kind("include_usage") == "false"
    start, end = scan.span("include_usage")
    assert body[start:end] == b"false"
    assert BodyScan(b'{"include_usage":true}').kind("include_usage") == "absent"
    assert BodyScan(b'{"stream_options":{"include_usage":true},"stream_options":null}').kind(
        "include_usage"
    ) == ("absent")


def test_the_outer_brackets_are_reported():
    body = b' {"a":1 } '
    assert BodyScan(body).object_span == (2, 8)
    assert BodyScan(b"{}").object_span == (1, 1)


@pytest.mark.parametrize(
    "body, expected",
    [
        (b"{}", (-1, -1, 0)),
        (b'{"n":4,"max_tokens":7,"priority":-3}', (4, 7, -3)),
        (b'{"max_tokens":7,"max_completion_tokens":9}', (-1, 9, 0)),
        (b'{"max_output_tokens":5}', (-1, 5, 0)),
        (b'{"max_tokens":7,"max_completion_tokens":null}', (-1, 7, 0)),
        (b'{"n":2.0,"max_tokens":"7","priority":1e3}', (-1, -1, 0)),
        (b'{"n":%b}' % (b"9" * 30), (-1, -1, 0)),
    ],
)
def test_numbers_that_are_no_integers_are_unknown(body, expected):
    scan = BodyScan(body)
    assert (scan.n, scan.max_tokens, scan.priority) == expected


def test_a_string_with_a_lone_surrogate_cannot_be_decoded():
    assert BodyScan(b'{"model":"\\ud83d"}').text("model") is None
    assert BodyScan(b'{"model":"\\ud83d\\ude00"}').text("model") == "😀".encode()


@given(ASCII_TEXT | TEXT | st.text(string.ascii_letters + " .0\n", max_size=9_000), st.booleans())
@example("a" * 5000 + " 1." * 2000, False)
def test_text_is_counted_by_class_as_the_oracle_does(text, escape):
    body = encode({"prompt": text}, escape, False)
    assert BodyScan(body).counts == oracle.count([text])


@given(CHAT, st.booleans(), st.booleans())
def test_a_chat_counts_its_texts_and_media(chat, escape, spaced):
    chat.pop("tools", None)
    for turn in chat["messages"]:
        turn.pop("tool_calls", None)
    scan = BodyScan(encode(chat, escape, spaced))
    texts = [*oracle.texts_of(chat.get("system")), *oracle.texts_of(chat["messages"])]
    assert scan.counts == oracle.count(texts)
    assert scan.messages == len(chat["messages"])
    parts = [
        part["type"]
        for turn in chat["messages"]
        if isinstance(turn.get("content"), list)
        for part in turn["content"]
    ]
    assert scan.images == parts.count("image_url")
    assert scan.audios == parts.count("input_audio")


def test_media_data_is_no_text():
    data = "A1b2" * 650_000
    parts = [
        {"type": "text", "text": "what is this"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64," + data}},
        {"type": "input_audio", "input_audio": {"data": data, "format": "wav"}},
        {"type": "image", "source": {"type": "base64", "data": data}},
        {"type": "video_url", "video_url": {"url": data}},
    ]
    scan = BodyScan(json.dumps({"messages": [{"role": "user", "content": parts}]}).encode())
    assert scan.counts == oracle.count(["user", "what is this"])
    assert (scan.images, scan.audios, scan.videos) == (2, 1, 1)


def test_tools_and_calls_are_counted():
    tool = {"type": "function", "function": {"name": "f", "parameters": {"a": [1, True, None]}}}
    with_tools = BodyScan(json.dumps({"tools": [tool]}).encode()).counts
    assert with_tools["letters"] >= len("typefunctionfunctionnamefparametersatruenull")
    assert with_tools["digits"] == 1
    call = {"role": "assistant", "content": None, "tool_calls": [tool]}
    with_call = BodyScan(json.dumps({"messages": [call]}).encode())
    assert with_call.counts["letters"] == with_tools["letters"] + len("assistant")


@pytest.mark.parametrize(
    "body, prompts, token_ids",
    [
        ({"prompt": "a"}, 1, 0),
        ({"prompt": ["a", "b", "c"]}, 3, 0),
        ({"prompt": [1, 2, 3]}, 1, 3),
        ({"prompt": [[1, 2], [3]]}, 2, 3),
        ({"input": ["a", "b"]}, 2, 0),
        ({"input": [[1], [2], [3, 4]]}, 3, 4),
        ({"input_ids": [5, 6]}, 1, 2),
        ({"query": "q", "documents": ["a", "b", "c", "d"]}, 4, 0),
        ({"text_1": "a", "text_2": ["b", "c"]}, 3, 0),
        ({"messages": []}, 1, 0),
        ({"messages": [{"role": "user", "content": 123}]}, 1, 0),
        ({}, 1, 0),
    ],
)
def test_batches_and_token_ids_are_counted_exactly(body, prompts, token_ids):
    scan = BodyScan(json.dumps(body).encode())
    assert (scan.prompts, scan.token_ids) == (prompts, token_ids)


@given(CHAT | BATCH, st.integers(0, 3), st.booleans(), st.booleans())
def test_prefix_keys_are_those_of_the_oracle(document, longer, escape, spaced):
    if longer and document.get("messages"):
        document["messages"][0]["content"] = "The quick brown fox. é 北 😀 \n" * 30 * longer
    body = encode(document, escape, spaced)
    assert BodyScan(body).prefix_keys() == oracle.prefix_keys(body)


@given(st.lists(TURN, min_size=1, max_size=5), st.lists(TURN, max_size=3), st.integers(1, 40))
def test_appending_messages_keeps_all_earlier_keys(turns, more, repeat):
    turns = [{"role": "system", "content": "You are a helpful assistant. " * repeat}, *turns]
    before = BodyScan(encode({"messages": turns}, True, False)).prefix_keys()
    after = BodyScan(encode({"model": "m", "messages": turns + more}, False, True)).prefix_keys()
    assert after[: len(before)] == before


def test_string_content_and_the_same_text_in_parts_hash_alike():
    text = 'Hello "world" 北京 😀\n' * 100
    whole = {"messages": [{"role": "user", "content": text}]}
    parts = [{"type": "text", "text": text[:777]}, {"text": text[777:], "type": "text"}]
    cut = {"messages": [{"content": parts, "role": "user"}]}
    assert BodyScan(encode(whole, False, False)).prefix_keys()
    assert (
        BodyScan(encode(whole, True, True)).prefix_keys()
        == BodyScan(encode(cut, False, False)).prefix_keys()
    )


def test_borders_between_messages_are_part_of_the_hash():
    pad = "x" * 300

    def keys(*turns):
        messages = [{"role": role, "content": text} for role, text in turns]
        return BodyScan(json.dumps({"messages": messages}).encode()).prefix_keys()

    variants = [
        keys(("user", "ab" + pad)),
        keys(("user", "a"), ("user", "b" + pad)),
        keys(("user", ""), ("user", "ab" + pad)),
        keys(("usera", "b" + pad)),
        keys(("system", "ab" + pad)),
    ]
    assert len({variant[0] for variant in variants}) == len(variants)


def test_an_image_is_hashed_by_its_url():
    def keys(image, tail="x" * 300):
        content = [{"type": "image_url", "image_url": image}, {"type": "text", "text": tail}]
        return BodyScan(
            json.dumps({"messages": [{"role": "user", "content": content}]}).encode()
        ).prefix_keys()

    assert keys({"url": "http://a/1.png"}) == keys("http://a/1.png")
    assert keys({"url": "http://a/1.png", "detail": "low"}) == keys("http://a/1.png")
    assert keys({"url": "http://a/1.png"}) != keys({"url": "http://a/2.png"})


@pytest.mark.parametrize("ids, blocks", [(63, 0), (64, 1), (127, 1), (128, 2), (64 * 600, 512)])
def test_token_arrays_have_64_ids_a_block(ids, blocks):
    flat = BodyScan(json.dumps({"prompt": list(range(ids))}).encode())
    nested = BodyScan(json.dumps({"prompt": [list(range(ids))]}).encode())
    assert len(flat.prefix_keys()) == blocks
    assert flat.prefix_keys() == nested.prefix_keys()


def test_at_most_the_wanted_number_of_keys_is_made():
    scan = BodyScan(json.dumps({"prompt": "word " * 100_000}).encode())
    assert len(scan.prefix_keys()) == 512
    assert scan.prefix_keys(7) == scan.prefix_keys()[:7]
    assert scan.prefix_keys(0) == []


def test_a_lone_surrogate_in_the_prompt_is_hashed_and_counted():
    body = b'{"prompt":"%b"}' % (b"\\ud83d\\ude00 \\ud83d a" * 50)
    scan = BodyScan(body)
    assert scan.prefix_keys() == oracle.prefix_keys(body)
    assert scan.counts["other"] == 100


def test_roots_differ_by_model_adapter_and_salt():
    roots = {
        prefix_root(b"m"),
        prefix_root(b"m2"),
        prefix_root(b"m", b"x"),
        prefix_root(b"m", None, b"x"),
        prefix_root(b"m", b""),
        prefix_root(b"m", b"x", b"x"),
    }
    assert len(roots) == 6
