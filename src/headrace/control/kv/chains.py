"""The blocks in one engine's prefix cache, and the prefix keys that belong to each; pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from headrace.control.kv.events import Hash, Removed, Stored
from headrace.control.kv.template import State, Template
from headrace.control.kv.vocabulary import Vocabulary
from headrace.core.scan import rooted

MAX_BLOCKS = 1 << 20  # of one replica that are known at a time, about 0.5 GB

Roots = Callable[[str | None, bytes | None], tuple[int, ...]]  # of (LoRA name, cache salt)


class Change(NamedTuple):
    """What an event means for the prefix table."""

    stored: list[int] = []
    removed: list[int] = []
    tokens: int = 0  # that entered


class Reading(NamedTuple):
    """How a model's tokens are read."""

    vocabulary: Vocabulary
    template: Template


class _Block:
    __slots__ = ("copies", "keys", "roots", "state")

    def __init__(self, state: State | None, roots: tuple[int, ...], keys: list[int]) -> None:
        self.copies = 1
        self.state = state  # behind this block; None: its text is not known
        self.roots = roots
        self.keys = keys  # completed in it


class Chains:
    """One engine's cache, followed from its events.

    Args:
        roots: of a prompt's keys, one for each name under which it may be asked for.
    """

    def __init__(self, roots: Roots) -> None:
        self.reading: Reading | None = None  # None: blocks are counted, not read
        self.unread_blocks = 0
        self._roots = roots
        self._blocks: dict[Hash, _Block] = {}
        self._holders: Counter[int] = Counter()  # blocks by key: a text may be cut into tokens anew

    def __len__(self) -> int:
        return len(self._blocks)

    def clear(self) -> None:
        """Nothing is in the cache any more."""
        self._blocks.clear()
        self._holders.clear()

    def store(self, event: Stored) -> Change:
        """Take in blocks that entered."""
        before = self._before(event)
        tokens = len(event.block_hashes) * event.block_size
        stored: list[int] = []
        for i, name in enumerate(event.block_hashes):
            block = self._blocks.get(name)
            if block is not None:
                block.copies += 1
            elif len(self._blocks) >= MAX_BLOCKS:
                break
            else:
                block = self._blocks[name] = self._read(before, event, i)
                self._holders.update(block.keys)
                self.unread_blocks += block.state is None
            stored += block.keys
            before = block
        return Change(stored, [], tokens)

    def remove(self, event: Removed) -> Change:
        """Take out blocks that left; of a block with copies, the last one counts."""
        removed = []
        left = event.remaining_copy_counts or [0] * len(event.block_hashes)
        for name, others in zip(event.block_hashes, left, strict=False):
            block = self._blocks.get(name)
            if block is None:
                continue
            block.copies = others if event.remaining_copy_counts else block.copies - 1
            if block.copies > 0:
                continue
            del self._blocks[name]
            for key in block.keys:
                self._holders[key] -= 1
                if self._holders[key] <= 0:
                    del self._holders[key]
                    removed.append(key)
        return Change([], removed)

    def _before(self, event: Stored) -> _Block:
        """What the first block follows: a block, or the beginning of a prompt."""
        if event.parent_block_hash is not None:
            return self._blocks.get(event.parent_block_hash) or _Block(None, (), [])
        if event.lora_id is not None and event.lora_name is None:
            return _Block(None, (), [])  # an older release: of which adapter is not told
        match _other_keys(event, 0):
            case []:
                return _Block(State(), self._roots(event.lora_name, None), [])
            case [str(salt)]:
                return _Block(State(), self._roots(event.lora_name, salt.encode()), [])
        return _Block(None, (), [])

    def _read(self, before: _Block, event: Stored, i: int) -> _Block:
        """The i-th block of an event."""
        salted = i == 0 and event.parent_block_hash is None
        is_text = salted or not _other_keys(event, i)
        if self.reading is None or before.state is None or not is_text:
            return _Block(None, (), [])
        ids = event.token_ids[i * event.block_size : (i + 1) * event.block_size]
        try:
            text = self.reading.vocabulary.text(ids)
        except IndexError:
            return _Block(None, (), [])
        state, keys = self.reading.template.read(before.state, text)
        found = [key for root in before.roots for key in rooted(keys, root)]
        return _Block(state, before.roots, found)


def _other_keys(event: Stored, i: int) -> list[object]:
    """What else the hash of a block is made of, its adapter left out: a salt, or media."""
    keys = event.extra_keys[i] if event.extra_keys and i < len(event.extra_keys) else None
    return [key for key in keys or () if key != event.lora_name]
