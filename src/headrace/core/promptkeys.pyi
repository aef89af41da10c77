"""Prefix keys of a prompt that becomes known piece by piece."""

class PromptKeys:
    """Gives the keys that `BodyScan.prefix_keys` gives for a body with the same prompt.

    Args:
        state: of another one, to go on where it was.

    Raises:
        ValueError: that is no state.
    """

    def __init__(self, state: bytes | None = ...) -> None: ...
    def begin_prompt(self) -> None:
        """What follows is a `prompt`, a string; first of all."""
    def begin_chat(self) -> None:
        """What follows are `messages`; first of all."""
    def begin_turn(self, role: bytes) -> None:
        """What follows is the content of the next message."""
    def add(self, text: bytes) -> None:
        """UTF-8 of the prompt or message begun, cut anywhere."""
    def take(self) -> list[int]:
        """The keys completed since the last call, without a root; 512 of a prompt in all."""
    @property
    def state(self) -> bytes:
        """Where it is, in at most 271 bytes."""
