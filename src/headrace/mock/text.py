"""A tokenizer that needs no vocabulary, and the words that fake answers are made of.

Four bytes of UTF-8 are one token, about what English costs with a real tokenizer. An id carries its
bytes, so `/detokenize` gives back what `/tokenize` took apart. Ids are therefore larger than those
of a real vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence

BYTES_PER_TOKEN = 4
_MARK = b"\x01"  # leading byte of an id: keeps zero bytes and the length of a short last token

# A word is one token and four bytes too, so that an answer in the next turn's prompt falls into the
# same cache blocks as when it was generated.
_FIRST, _SECOND, _THIRD = "bdfglmst", "aeio", "klmnprst"
WORDS = tuple(f" {a}{b}{c}" for a in _FIRST for b in _SECOND for c in _THIRD)
STRIDE = 89  # odd, so that every word comes up before one repeats


def token_count(text: bytes) -> int:
    return -(-len(text) // BYTES_PER_TOKEN)


def encode(text: bytes) -> list[int]:
    step = BYTES_PER_TOKEN
    return [int.from_bytes(_MARK + text[i : i + step]) for i in range(0, len(text), step)]


def decode(ids: Sequence[int]) -> str:
    parts = [i.to_bytes(BYTES_PER_TOKEN + 1).lstrip(b"\0").removeprefix(_MARK) for i in ids]
    return b"".join(parts).decode("utf-8", "replace")


def words(seed: int, first: int, count: int) -> str:
    """Tokens `first` … `first + count - 1` of the answer that `seed` stands for."""
    if count == 1:
        return WORDS[(seed + first * STRIDE) & 255]
    return "".join([WORDS[(seed + i * STRIDE) & 255] for i in range(first, first + count)])
