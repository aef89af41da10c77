from typing import Final, final

CLASSES: Final[dict[str, int]]

@final
class EventStream:
    """Observes an event stream fed in pieces of any size; its results do not depend on the cuts.

    Offsets count from the stream's first byte, figures that are not known are -1.
    """

    def __init__(self) -> None: ...
    def feed(self, data: bytes) -> int:
        """Takes all bytes; returns how many events (comments not counted) they completed."""
    def step(self, data: bytes) -> int:
        """Takes bytes up to the end of the next event, or all; returns how many."""
    @property
    def in_event(self) -> bool:
        """Whether an event has begun and not ended."""
    @property
    def position(self) -> int:
        """Bytes taken so far."""
    @property
    def events(self) -> int:
        """Completed events."""
    @property
    def content_events(self) -> int:
        """Completed events with text, a role, a call, reasoning or a finish."""
    @property
    def seen(self) -> set[str]:
        """Classes (of CLASSES) of all completed events."""
    @property
    def last(self) -> tuple[int, int, set[str]]:
        """Start, end and classes of the last completed event or comment."""
    @property
    def head(self) -> tuple[int, set[str]]:
        """End and classes of the first event beyond comments and preambles; (0, empty) before."""
    @property
    def usage_span(self) -> tuple[int, int]:
        """Start and end of the last event that carries nothing but usage; (0, 0) without one."""
    @property
    def error(self) -> tuple[int, bytes, bool]:
        """Code (0: none) and text of the first error event, and whether it refused for load."""
    @property
    def going_away(self) -> bool:
        """Whether an error says that the engine is shutting down."""
    @property
    def finishes(self) -> int:
        """Choices that ended."""
    @property
    def aborted(self) -> bool:
        """Whether one of them ended by `abort`."""
    @property
    def usage(self) -> dict[str, int]:
        """prompt_tokens, completion_tokens and cached_tokens: the last figures seen."""

@final
class PlainAnswer:
    """Reads usage, finishes and errors out of a plain JSON answer fed in pieces of any size."""

    def __init__(self) -> None: ...
    def feed(self, data: bytes) -> None:
        """Takes the next piece of the body."""
    @property
    def is_error(self) -> bool:
        """Whether the body is an error object of any dialect."""
    @property
    def error(self) -> tuple[int, bytes, bool]:
        """Code (0: none) and text of the error, and whether it refused for load."""
    @property
    def going_away(self) -> bool:
        """Whether an error says that the engine is shutting down."""
    @property
    def finishes(self) -> int:
        """Choices that ended."""
    @property
    def aborted(self) -> bool:
        """Whether one of them ended by `abort`."""
    @property
    def usage(self) -> dict[str, int]:
        """prompt_tokens, completion_tokens and cached_tokens; -1 where the body has none."""
