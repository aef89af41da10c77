from collections.abc import Iterable
from typing import Final, final

FIELDS: Final[tuple[str, ...]]
KINDS: Final[tuple[str, ...]]
MAX_PREFIX_KEYS: Final[int]
PREFIX_BLOCK_BYTES: Final[int]

@final
class BodyScan:
    """What routing needs to know of a request body, found in one pass over its bytes.

    Args:
        body: the whole request body; it is kept.

    Raises:
        ValueError: if the body is no JSON object (RFC 8259, valid UTF-8, at most 1,024 deep).
    """

    def __init__(self, body: bytes) -> None: ...
    @property
    def body(self) -> bytes:
        """The body as it came."""
    @property
    def object_span(self) -> tuple[int, int]:
        """Offsets after the outer '{' and of the outer '}', where a member may be added."""
    @property
    def counts(self) -> dict[str, int]:
        """Characters and runs of the prompt's decoded text by script class."""
    @property
    def messages(self) -> int:
        """Turns of a chat or items of an input; 0 for a plain prompt."""
    @property
    def prompts(self) -> int:
        """Sequences of a batch, at least 1."""
    @property
    def images(self) -> int:
        """Image parts; their URLs and data are no text."""
    @property
    def audios(self) -> int:
        """Audio parts."""
    @property
    def videos(self) -> int:
        """Video parts."""
    @property
    def token_ids(self) -> int:
        """Token ids in prompt arrays."""
    @property
    def n(self) -> int:
        """Choices asked for, -1 if not given as an integer."""
    @property
    def max_tokens(self) -> int:
        """The limit of output tokens that vLLM would take, -1 if there is none."""
    @property
    def priority(self) -> int:
        """vLLM's scheduling priority, 0 if not given."""
    def kind(self, field: str) -> str:
        """JSON kind of a field of FIELDS, one of KINDS."""
    def span(self, field: str) -> tuple[int, int]:
        """Start and end offset of a field's value in the body, quotes included."""
    def text(self, field: str) -> bytes | None:
        """A string field decoded; None if absent, no string, or holding a lone surrogate."""
    def prefix_keys(self, max: int = ...) -> list[int]:
        """Chained 64-bit hashes of the prompt's full blocks of 256 decoded bytes.

        Args:
            max: at most so many keys, up to MAX_PREFIX_KEYS.
        """

def prefix_root(model: bytes, lora: bytes | None = ..., salt: bytes | None = ...) -> int:
    """What is mixed into each prefix key so that unequal models, adapters and salts share none."""

def rooted(keys: Iterable[int], root: int) -> list[int]:
    """The keys as the prefix table knows them, of `BodyScan.prefix_keys` and a root."""
