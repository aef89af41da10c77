"""Learns a model's chat template from what its engine makes of conversations with known contents.

`POST /tokenize` applies the very template that the engine was started with, and costs no inference.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from headrace.control.kv.template import MAX_FIXED_BYTES, PROMPT, Ending, Opening, Template
from headrace.control.kv.vocabulary import Vocabulary

Tokenize = Callable[[dict[str, Any]], Awaitable[list[int] | None]]  # None: the engine refuses it

CONTENTS = ("Zurich7 quartz", "Oslo4 velvet", "Lima9 copper", "Cairo2 walnut")
ROLES = ("system", "user", "assistant", "user")


async def learn(tokenize: Tokenize, vocabulary: Vocabulary) -> Template | None:
    """The template; None if nothing of it could be learned, or the vocabulary does not fit.

    Args:
        tokenize: asks the engine, with `messages` or `prompt`.
        vocabulary: of the model.
    """
    openings: list[Opening] = []
    endings: dict[str, list[Ending]] = {}
    for roles in (ROLES, ROLES[1:], ROLES[3:]):
        contents = CONTENTS[: len(roles)]
        chat = [{"role": r, "content": c} for r, c in zip(roles, contents, strict=True)]
        asked = {"messages": chat, "add_generation_prompt": True}
        fixed = _between(await _text(tokenize, vocabulary, asked), contents)
        if fixed is None or not all(fixed[1:]):
            continue
        openings.append(Opening(fixed[0], roles[0]))
        # Behind the last question the answer begins.
        for role, following, text in zip(roles, (*roles[1:], "assistant"), fixed[1:], strict=True):
            endings.setdefault(role, []).append(Ending(text, following))
    plain = _between(await _text(tokenize, vocabulary, {"prompt": CONTENTS[0]}), CONTENTS[:1])
    if plain is not None:
        openings.append(Opening(plain[0], PROMPT))
    return Template(openings, endings) if openings else None


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
