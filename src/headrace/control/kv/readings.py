"""How the tokens of each replica are read: its model's vocabulary and its own chat template."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import msgspec
import orjson

from headrace.control.checks import auth_headers
from headrace.control.fetch import FetchError, Trouble
from headrace.control.kv.chains import Reading
from headrace.control.kv.learning import learn
from headrace.control.kv.vocabulary import Vocabulary
from headrace.control.probes import model_to_ask
from headrace.errors import ConfigError

if TYPE_CHECKING:
    from headrace.control.loop import Control
    from headrace.control.registry import Member

log = logging.getLogger("headrace.kv_events")

TIMEOUT_S = 5.0
MAX_ANSWER_BYTES = 4 << 20
NOT_NOW = (429, 502, 503, 504)  # statuses that say nothing of what was asked


class _Tokens(msgspec.Struct):
    tokens: list[int]


_answer = msgspec.json.Decoder(_Tokens)


class Readings:
    """Loads each vocabulary once; learns a template for whoever asks."""

    def __init__(self, control: Control) -> None:
        self._control = control
        self._vocabularies: dict[str, asyncio.Task[Vocabulary]] = {}  # by path

    def path_of(self, member: Member) -> str | None:
        """The tokenizer that the configuration names for a model of the replica."""
        entries = self._control.config.control.kv_tokenizers
        return next((entry.path for entry in entries if entry.model in member.cards), None)

    async def of(self, member: Member) -> tuple[Reading | None, str]:
        """The reading of a replica's tokens, or None and why not.

        Raises:
            FetchError: the replica does not answer at present.
        """
        path = self.path_of(member)
        if path is None:
            return None, "no tokenizer is configured for its models"
        try:
            vocabulary = await self._vocabulary(path)
        except ConfigError as error:
            self._vocabularies.pop(path, None)  # the file may come
            return None, str(error)
        model = model_to_ask(member)

        async def tokenize(asked: dict[str, Any]) -> list[int] | None:
            return await self._tokenize(member, {"model": model, **asked})

        template = await learn(tokenize, vocabulary)
        if template is None:
            return None, f"the replica refuses /tokenize, or {path} does not spell its tokens"
        return Reading(vocabulary, template), "read"

    async def _vocabulary(self, path: str) -> Vocabulary:
        task = self._vocabularies.get(path)
        if task is None:  # several replicas of a model wait for the same one
            task = self._control.spawn(asyncio.to_thread(Vocabulary, path))
            self._vocabularies[path] = task
        return await asyncio.shield(task)

    async def _tokenize(self, member: Member, asked: dict[str, Any]) -> list[int] | None:
        try:
            page = await self._control.fetcher.post(
                f"{member.url}/tokenize",
                orjson.dumps(asked),
                TIMEOUT_S,
                MAX_ANSWER_BYTES,
                auth_headers(member),
            )
            return _answer.decode(page).tokens
        except FetchError as error:
            if error.trouble is not Trouble.STATUS or error.status in NOT_NOW:
                raise
            return None  # a template may refuse roles
        except msgspec.MsgspecError:
            return None
