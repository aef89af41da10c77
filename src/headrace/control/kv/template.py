"""A chat template read backwards: from the text that an engine holds to messages; pure.

A template is taken to be fixed text between the contents of messages, which depends on the roles
on both sides only. What is not of that form (tools, images) yields keys that nobody asks for, or
none. An answer that later turns change (its reasoning is dropped, say) is not read, nor what
follows: its keys would be asked for, by clients that send it back as it came.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from headrace.core.promptkeys import PromptKeys

OPENING = ""  # the role before it is clear how the prompt begins
PROMPT = "prompt"  # not a chat
UNREAD = "unread"  # no later prompt repeats what follows
MAX_FIXED_BYTES = 16 << 10  # between two contents; more is no template of this kind


class Opening(NamedTuple):
    """How a prompt may begin, and whose content follows."""

    text: bytes
    role: str


class Ending(NamedTuple):
    """What stands behind a content, and whose content follows."""

    text: bytes
    role: str


class State(NamedTuple):
    """Where the reading of a text is, at the end of a block."""

    role: str = OPENING
    pending: bytes = b""  # read, but it may be the beginning of an ending
    hashed: bytes = b""  # state of the PromptKeys


class Template:
    """How the contents of messages stand in a prompt.

    Args:
        openings: of chats, and of a plain prompt; of equal texts the first counts.
        endings: by the role whose content ends.
    """

    def __init__(self, openings: Iterable[Opening], endings: dict[str, list[Ending]]) -> None:
        self.openings = sorted(openings, key=lambda o: len(o.text), reverse=True)
        self.endings = {
            role: sorted(set(texts), key=lambda e: len(e.text), reverse=True)
            for role, texts in endings.items()
        }

    def read(self, state: State, text: bytes) -> tuple[State | None, list[int]]:
        """Read on, from `state`, over the text of the next block.

        Returns:
            The state behind it, None if this is no prompt of this template or UNREAD from there
            on; and the prefix keys, without a root, that were completed.
        """
        role, data = state.role, state.pending + text
        keys = PromptKeys(state.hashed or None)
        if role == OPENING:
            opening = self._opening(data)
            if opening is None:
                return None, []
            if opening.role == OPENING:
                return State(OPENING, data), []
            role, data = opening.role, data[len(opening.text) :]
            if role == PROMPT:
                keys.begin_prompt()
            else:
                keys.begin_chat()
                keys.begin_turn(role.encode())
        while (found := self._ending(role, data)) is not None:
            at, ending = found
            keys.add(data[:at])
            if ending.role == UNREAD:
                return None, keys.take()
            role, data = ending.role, data[at + len(ending.text) :]
            keys.begin_turn(role.encode())
        certain = len(data) - self._open_bytes(role, data)
        keys.add(data[:certain])
        return State(role, data[certain:], keys.state), keys.take()

    def _opening(self, data: bytes) -> Opening | None:
        """The longest that fits; with the role OPENING while a longer one may still come."""
        for opening in self.openings:
            if data.startswith(opening.text):
                return opening
            if opening.text.startswith(data):
                return Opening(b"", OPENING)
        return None

    def _ending(self, role: str, data: bytes) -> tuple[int, Ending] | None:
        """The first one in the data; of those at one place, the longest. None while such a one may
        still come.
        """
        best = None
        for ending in self.endings.get(role, ()):
            at = data.find(ending.text)
            if at >= 0 and (best is None or at < best[0]):
                best = at, ending
        if best is not None and len(data) - self._open_bytes(role, data) <= best[0]:
            return None
        return best

    def _open_bytes(self, role: str, data: bytes) -> int:
        """How many bytes at the end of the data may be the beginning of an ending."""
        most = 0
        for ending in self.endings.get(role, ()):
            at = data.find(ending.text[:1], max(len(data) - len(ending.text) + 1, 0))
            while at >= 0 and not ending.text.startswith(data[at:]):
                at = data.find(ending.text[:1], at + 1)
            if at >= 0:
                most = max(most, len(data) - at)
        return most
