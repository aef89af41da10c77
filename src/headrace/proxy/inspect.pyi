from typing import Any

def read_request(head: bytes) -> dict[str, Any] | None:
    """What a gateway reads in a request head; None if it refuses it."""

def rewrite_request(head: bytes) -> bytes | None:
    """The head that a replica gets, with the lines of an unnamed one; None if it is refused."""

def rewrite_response(head: bytes) -> bytes | None:
    """The head that a client gets, without the lines of our own; None if it is refused."""

class ChunkedBody:
    """A chunked body fed in pieces."""

    def __init__(self) -> None: ...
    @property
    def payload(self) -> bytes:
        """The body so far, without its framing."""
    @property
    def done(self) -> bool:
        """The last chunk and the trailers have passed."""
    @property
    def bad(self) -> bool:
        """This is no chunked body."""
    def feed(self, data: bytes) -> int:
        """Takes what belongs to the body; returns the bytes taken."""
    def closing(self) -> tuple[bytes, int, bytes] | None:
        """What brings a body cut here to a chunk border: before, newlines, after."""
