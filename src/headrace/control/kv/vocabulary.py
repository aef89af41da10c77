"""The bytes behind each token id, from a `tokenizer.json` (extra `headrace[kv-events]`)."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from headrace.errors import ConfigError

FILE = "tokenizer.json"
WORD_START = "\u2581"  # of SentencePiece: a space
# Their UTF-8 has every byte that UTF-8 can have.
ALL_LENGTHS = (range(0x80), range(0x80, 0x800), range(0x800, 0x110000, 0x40))


class Vocabulary:
    """Spells token ids.

    Raises:
        ConfigError: the file is missing, is no tokenizer, or the extra is not installed.
    """

    def __init__(self, path: str) -> None:
        file = Path(path) / FILE if Path(path).is_dir() else Path(path)
        try:
            from tokenizers import Tokenizer

            tokenizer = Tokenizer.from_file(str(file))
        except ImportError:
            raise ConfigError("a tokenizer needs `pip install headrace[kv-events]`") from None
        except Exception as error:  # the library has no narrower one
            raise ConfigError(f"{file}: no tokenizer: {error}") from None
        spell = _byte_level if _has_byte_level(tokenizer) else _sentence_piece
        alphabet = _alphabet()
        found = {id: spell(token, alphabet) for token, id in tokenizer.get_vocab().items()}
        for id, added in tokenizer.get_added_tokens_decoder().items():
            found[id] = added.content.encode()
        self._pieces = [found.get(id, b"") for id in range(max(found, default=-1) + 1)]

    def text(self, ids: Iterable[int]) -> bytes:
        """UTF-8 of a run of tokens, which may begin and end within a character; raises IndexError
        for an id that does not exist.
        """
        pieces = self._pieces
        return b"".join([pieces[id] for id in ids])


def _has_byte_level(tokenizer: Any) -> bool:
    decoder = json.loads(tokenizer.to_str()).get("decoder") or {}
    return any(part.get("type") == "ByteLevel" for part in (decoder, *decoder.get("decoders", ())))


def _alphabet() -> dict[str, int]:
    """The byte behind each character of byte-level tokens."""
    from tokenizers.pre_tokenizers import ByteLevel

    split = ByteLevel(add_prefix_space=False, use_regex=False)
    found: dict[str, int] = {}
    for code in itertools.chain(*ALL_LENGTHS):
        if not 0xD800 <= code < 0xE000:
            (written, _), *_ = split.pre_tokenize_str(chr(code))
            found.update(zip(written, chr(code).encode(), strict=True))
    return found


def _byte_level(token: str, alphabet: dict[str, int]) -> bytes:
    try:
        return bytes([alphabet[c] for c in token])
    except KeyError:  # a token that was put in by hand
        return token.encode()


def _sentence_piece(token: str, alphabet: dict[str, int]) -> bytes:
    if len(token) == 6 and token.startswith("<0x") and token.endswith(">"):
        return bytes.fromhex(token[3:5])
    return token.replace(WORD_START, " ").encode()
