from collections.abc import Sequence
from typing import Final

from headrace.core.scan import BodyScan

MAX_PREFIX_KEYS: Final[int]
GENERATE: Final[int]
EMBED: Final[int]

class RouteRequest:
    """What a policy may know of a request, in the form that the data plane fills.

    Attributes:
        model: id of the model in the segment.
        kind: GENERATE, or EMBED for what makes no tokens.
        stream: the answer comes token by token.
        priority: 0 system, 1 interactive, 2 default, 3 bulk.
        sequences: answers asked for, n times batch.
        max_tokens: limit of the answer, 0: none.
        prompt_tokens: estimate for all prompts of the batch.
        features: 12 counts that the estimate is made of, see csrc/tokens.h.
        has_session, session: the hash of the session key, if there is one.
    """

    model: int
    kind: int
    stream: bool
    priority: int
    sequences: int
    max_tokens: int
    prompt_tokens: float
    features: list[float]
    has_session: bool
    session: int
    def __init__(self) -> None: ...
    def offer(self, rank: int, key: bytes) -> None:
        """A session key from place `rank` of the order (0 first); the first in the order wins."""
    def read(self, scan: BodyScan, model: bytes, kind: int = ...) -> None:
        """Take over what a body says, for the model's name after aliasing."""
    def set_prefix(self, keys: Sequence[int]) -> None:
        """Chained block keys, one for each 64 tokens of the prompt's beginning; 512 are kept."""
    @property
    def prefix_keys(self) -> list[int]:
        """The block keys, mixed with what separates models, adapters and salts."""
