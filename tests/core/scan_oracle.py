"""Plain Python readings of what the scanner does: slow, and obviously right."""

import json

import orjson
import xxhash

TEXT_KEYS = ("role", "content", "text", "thinking", "refusal", "summary", "output")
JSON_KEYS = ("arguments", "input", "tool_calls", "function_call")
IMAGE_KEYS = ("image_url", "image", "image_pil", "image_embeds", "source", "file_data", "file_url")
AUDIO_KEYS = ("input_audio", "audio_url", "audio", "audio_embeds")
VIDEO_KEYS = ("video_url", "video")
# Members in the order in which they are hashed.
PART_KEYS = (
    *TEXT_KEYS,
    *JSON_KEYS,
    *IMAGE_KEYS[:5],
    *AUDIO_KEYS,
    *VIDEO_KEYS,
    *IMAGE_KEYS[5:],
)
FIELDS = (
    "instructions", "system", "tools", "functions", "messages", "prompt", "input", "text",
    "input_ids", "query", "queries", "documents", "text_1", "text_2", "items",
)  # fmt: skip
FIRST_FIELD = 13


def refuse(name: str):
    raise ValueError(name)


def accepts(body: bytes) -> bool:
    """Whether the scanner takes a (shallow) body: the standard library's strict reading."""
    try:
        return isinstance(json.loads(body.decode(), parse_constant=refuse), dict)
    except (ValueError, RecursionError):
        return False


def beyond_orjson(body: bytes) -> bool:
    """Whether orjson refuses a body only for what it cannot hold: big numbers, lone surrogates."""
    try:
        orjson.loads(body)
    except orjson.JSONDecodeError as error:
        return "surrogate" in str(error) or "infinity" in str(error)
    return False


def character_class(c: str) -> str:
    if "a" <= c <= "z" or "A" <= c <= "Z":
        return "letters"
    if "0" <= c <= "9":
        return "digits"
    if c in " \t\n\v\f\r":
        return "spaces"
    if c < "\x80":
        return "marks"
    if c < "\u0800":
        return "latin"
    ranges = (
        (0x2E80, 0xD800), (0x1100, 0x1200), (0xF900, 0xFB00), (0xFE30, 0xFE50), (0xFF00, 0xFFF0),
        (0x20000, 0x40000),
    )  # fmt: skip
    return "cjk" if any(low <= ord(c) < high for low, high in ranges) else "other"


RUNS = {"letters": "words", "spaces": "space_runs", "marks": "mark_runs"}


def count(texts) -> dict[str, int]:
    """Counts by class of separate texts."""
    names = ("letters", "words", "digits", "spaces", "space_runs", "marks", "mark_runs")
    counts = dict.fromkeys((*names, "latin", "cjk", "other"), 0)
    for text in texts:
        last = None
        for c in text:
            kind = character_class(c)
            counts[kind] += 1
            if kind in RUNS and kind != last:
                counts[RUNS[kind]] += 1
            last = "wide" if kind in ("latin", "cjk", "other") else kind
    return counts


def texts_of(value):
    """Texts of a message, a part or a list of them (no JSON members)."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for element in value:
            yield from texts_of(element)
    elif isinstance(value, dict):
        for key in TEXT_KEYS:
            if key in value:
                yield from texts_of(value[key])


class Stream:
    """The hashed byte stream of a prompt."""

    def __init__(self) -> None:
        self.data = bytearray()

    def mark(self, byte: int) -> None:
        self.data.append(byte)

    def text(self, text: str) -> None:
        self.data += text.encode("utf-8", "surrogatepass")

    def json(self, value, raw: bool = True) -> None:
        if raw:
            self.mark(0xFD)
        if isinstance(value, str):
            self.mark(0xFB)
            self.text(value)
            self.mark(0xFB)
        elif isinstance(value, list):
            self.text("[")
            for index, element in enumerate(value):
                self.text("," if index else "")
                self.json(element, False)
            self.text("]")
        elif isinstance(value, dict):
            self.text("{")
            for index, (key, element) in enumerate(value.items()):
                self.text("," if index else "")
                self.json(key, False)
                self.text(":")
                self.json(element, False)
            self.text("}")
        else:
            self.text(json.dumps(value))

    def media(self, value) -> None:
        if isinstance(value, dict) and isinstance(value.get("url"), str):
            value = value["url"]
        inner = Stream()
        if isinstance(value, str):
            inner.text(value)
        else:
            inner.json(value)
        *full, tail = blocks(bytes(inner.data))
        chain = full[-1] if full else 0
        self.mark(0xFC)
        self.data += xxhash.xxh64_intdigest(tail, chain).to_bytes(8, "little")

    def value(self, value) -> None:
        if isinstance(value, str):
            self.text(value)
        elif isinstance(value, list):
            for element in value:
                self.value(element)
        elif isinstance(value, dict):
            self.object(value, False)

    def object(self, value: dict, is_turn: bool) -> None:
        if is_turn:
            self.mark(0xFF)
        for key in PART_KEYS:
            if is_turn and key == "content":
                self.mark(0xFE)
            member = value.get(key)
            if member is None:
                continue
            if key in TEXT_KEYS:
                self.value(member)
            elif key in JSON_KEYS:
                self.json(member)
            else:
                self.media(member)

    def batch(self, values: list, nested: bool = False) -> None:
        for index, value in enumerate(values):
            if isinstance(value, int):
                self.data += value.to_bytes(4, "little")
            elif isinstance(value, dict):
                self.object(value, True)
            elif isinstance(value, list) and not nested:
                self.data += b"\xff\xff\xff\xff" if index else b""
                self.batch(value, True)
            else:
                if index:
                    self.mark(0xFF)
                self.value(value)


def blocks(data: bytes) -> list:
    """Chained keys of all full blocks, then the rest that fills none."""
    keys = []
    chain = 0
    while len(data) >= 256:
        chain = xxhash.xxh64_intdigest(data[:256], chain)
        keys.append(chain)
        data = data[256:]
    return [*keys, data]


def prefix_keys(body: bytes, limit: int = 512) -> list[int]:
    document = json.loads(body)
    stream = Stream()
    for index, field in enumerate(FIELDS, FIRST_FIELD):
        value = document.get(field)
        if not isinstance(value, str | list | dict):
            continue
        stream.data += bytes((0xF9, index))
        if field in ("tools", "functions"):
            stream.json(value)
        elif isinstance(value, list) and field not in ("instructions", "system", "query"):
            stream.batch(value)
        else:
            stream.value(value)
    return blocks(bytes(stream.data))[:-1][:limit]
