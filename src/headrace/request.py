"""What a policy may know of a request: model, size, beginning and session; never its transport."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from headrace.core import request as core
from headrace.core.hashing import hash64
from headrace.core.scan import BodyScan, prefix_root
from headrace.errors import InvalidJson, InvalidRequest

BLOCK_BYTES = 256
BLOCK_TOKENS = 64  # that a block counts as
MASK = (1 << 64) - 1

Headers = Mapping[str, str] | Iterable[tuple[str, str]]


class RouteRequest:
    """A request to be routed; it can be routed any number of times, by any router.

    Args:
        model: the served name; None: the router's only one.
        prompt_tokens: estimate or count, 0 or more.
        prefix: the prompt's beginning, by which replicas that have it in their cache are found:
            its text (str or bytes), or one number for each 64 tokens, equal numbers for equal
            blocks.
        session: requests with the same key belong together; "" and None: none.
        max_tokens: limit of the answer; None: not given.
        stream: whether the answer comes token by token, so that `lease.tokens` is called.
        sequences: answers asked for, over all prompts of a batch.
        output: False for embeddings, scores and the like, which make no tokens.
    """

    def __init__(
        self,
        model: str | None = None,
        *,
        prompt_tokens: float = 0,
        prefix: str | bytes | Sequence[int] = (),
        session: str | bytes | None = None,
        max_tokens: int | None = None,
        stream: bool = True,
        sequences: int = 1,
        output: bool = True,
    ) -> None:
        self.model = model
        self.prompt_tokens = prompt_tokens
        self.prefix = prefix
        self.session = session
        self.max_tokens = max_tokens
        self.stream = stream
        self.sequences = sequences
        self.output = output
        self.scan: BodyScan | None = None
        self.headers: tuple[tuple[str, bytes], ...] = ()

    @classmethod
    def from_body(
        cls, body: bytes, headers: Headers | None = None, *, output: bool = True
    ) -> RouteRequest:
        """Read a request body of the OpenAI or Anthropic kind.

        Args:
            body: the JSON bytes; they are kept.
            headers: the request's headers, of which only session headers are looked at.
            output: False for embeddings, scores and the like, which make no tokens.

        Raises:
            InvalidJson: the body is no JSON object.
            InvalidRequest: its `model` is no string.
        """
        try:
            scan = BodyScan(body)
        except ValueError:
            raise InvalidJson("the body is no JSON object") from None
        name = scan.text("model")
        if name is None and scan.kind("model") not in ("absent", "null"):
            raise InvalidRequest("model must be a string", param="model")
        request = cls(None if name is None else name.decode(), output=output)
        request.scan = scan
        pairs = headers.items() if isinstance(headers, Mapping) else headers or ()
        request.headers = tuple((k.lower(), v.encode("utf-8", "surrogateescape")) for k, v in pairs)
        return request

    def bind(
        self, model_id: int, name: str, session_headers: Sequence[str] = ()
    ) -> core.RouteRequest:
        """The same as the core wants it, for a model of a segment; a fresh one each time.

        Args:
            model_id: the model's number in the segment.
            name: its served name, which separates equal prompts of different models.
            session_headers: in the order in which they count.
        """
        bound = core.RouteRequest()
        bound.model = model_id
        for rank, header in enumerate(session_headers):
            for key, value in self.headers:
                if key == header:
                    bound.offer(rank, value)
        if self.scan is not None:
            bound.read(self.scan, name.encode(), core.GENERATE if self.output else core.EMBED)
            return bound
        bound.kind = core.GENERATE if self.output else core.EMBED
        bound.prompt_tokens = self.prompt_tokens
        bound.max_tokens = self.max_tokens or 0
        bound.stream = self.stream
        bound.sequences = self.sequences
        bound.set_prefix(self._keys(name))
        if self.session:
            bound.offer(len(session_headers), _bytes(self.session))
        return bound

    def _keys(self, name: str) -> list[int]:
        blocks: Iterable[int]
        if isinstance(self.prefix, str | bytes):
            text = _bytes(self.prefix)
            ends = range(BLOCK_BYTES, len(text) + 1, BLOCK_BYTES)
            blocks = (hash64(text[end - BLOCK_BYTES : end]) for end in ends)
        else:
            blocks = self.prefix
        keys, chain = [], prefix_root(name.encode())
        for block in blocks:
            chain = hash64((block & MASK).to_bytes(8, "little"), chain)
            keys.append(chain)
            if len(keys) == core.MAX_PREFIX_KEYS:
                break
        return keys


def _bytes(text: str | bytes) -> bytes:
    return text.encode() if isinstance(text, str) else text
