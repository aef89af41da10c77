"""Learns a model's chat template from what its engine makes of conversations with known contents.

`POST /tokenize` applies the very template that the engine was started with, and costs no inference.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from headrace.control.kv.template import (
    MAX_FIXED_BYTES,
    PROMPT,
    UNREAD,
    Ending,
    Opening,
    Template,
)
from headrace.control.kv.vocabulary import Vocabulary

Tokenize = Callable[[dict[str, Any]], Awaitable[list[int] | None]]  # None: the engine refuses it

CONTENTS = ("Zurich7 quartz", "Oslo4 velvet", "Lima9 copper", "Cairo2 walnut")
ROLES = ("system", "user", "assistant", "user")
# Where a system message only stands before the first question, chats without one are read.
ANSWERED = ROLES[1:]
CHATS = (ROLES[3:], ANSWERED, ROLES)
SPACES = (b" ", b"\n", b"\t", b"\r")
SPACED = f"\n {CONTENTS[2]}"
REASONING = (b"<think>", b"</think>")
REASONED = f"<think>\nNile3\n</think>\n\n{CONTENTS[2]}"


async def learn(tokenize: Tokenize, vocabulary: Vocabulary) -> Template | None:
    """The template; None if nothing of it could be learned, or the vocabulary does not fit.

    Args:
        tokenize: asks the engine, with `messages` or `prompt`.
        vocabulary: of the model.
    """
    openings: list[Opening] = []
    endings: dict[str, list[Ending]] = {}
    answer_begins: list[bytes] = []
    texts = {
        roles: await _chat_text(tokenize, vocabulary, roles, CONTENTS[-len(roles) :])
        for roles in CHATS
    }
    for roles, text in texts.items():
        fixed = _between(text, CONTENTS[-len(roles) :])
        if fixed is None or not all(fixed[1:]):
            continue
        openings.append(Opening(fixed[0], roles[0]))
        for role, following, between in zip(roles, roles[1:], fixed[1:], strict=False):
            endings.setdefault(role, []).append(Ending(between, following))
        answer_begins.append(fixed[-1])
    plain = _between(await _text(tokenize, vocabulary, {"prompt": CONTENTS[0]}), CONTENTS[:1])
    if plain is not None:
        openings.append(Opening(plain[0], PROMPT))
    await _add_unread(tokenize, vocabulary, endings, answer_begins, texts[ANSWERED] or b"")
    return Template(openings, endings) if openings else None


async def _add_unread(
    tokenize: Tokenize,
    vocabulary: Vocabulary,
    endings: dict[str, list[Ending]],
    answer_begins: list[bytes],
    usual: bytes,
) -> None:
    """Mark where an answer, as it was generated, is not what later turns make of it."""
    questions = endings.setdefault("user", [])
    earlier = {ending.text for ending in questions}
    questions += [Ending(text, UNREAD) for text in answer_begins if text not in earlier]

    async def changes(answer: str) -> bool:
        """Whether an earlier answer does not stand in a prompt as it is."""
        contents = (CONTENTS[1], answer, CONTENTS[3])
        text = await _chat_text(tokenize, vocabulary, ANSWERED, contents)
        return text != usual.replace(CONTENTS[2].encode(), answer.encode())

    if await changes(SPACED):
        questions += [Ending(text + space, UNREAD) for text in earlier for space in SPACES]
    if await changes(REASONED):
        endings.setdefault("assistant", []).extend(Ending(mark, UNREAD) for mark in REASONING)


async def _chat_text(
    tokenize: Tokenize, vocabulary: Vocabulary, roles: tuple[str, ...], contents: tuple[str, ...]
) -> bytes | None:
    chat = [{"role": r, "content": c} for r, c in zip(roles, contents, strict=True)]
    return await _text(tokenize, vocabulary, {"messages": chat, "add_generation_prompt": True})


async def _text(tokenize: Tokenize, vocabulary: Vocabulary, asked: dict[str, Any]) -> bytes | None:
    ids = await tokenize(asked)
    try:
        return None if ids is None else vocabulary.text(ids)
    except IndexError:
        return None


def _between(text: bytes | None, contents: tuple[str, ...]) -> list[bytes] | None:
    """What stands before, between and behind the contents; None if they are not all there, in
    order.
    """
    found: list[bytes] = []
    for content in contents:
        before, is_there, text = (text or b"").partition(content.encode())
        if not is_there or len(before) > MAX_FIXED_BYTES:
            return None
        found.append(before)
    return [*found, text or b""]
