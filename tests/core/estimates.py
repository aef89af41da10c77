"""Prompts of three kinds, a tokenizer that has not seen them, and how well both are matched."""

import json

from route_rig import MODEL
from texts import CHINESE, chinese, english, modules

from headrace.core.request import RouteRequest
from headrace.core.scan import BodyScan

TEMPLATE_TOKENS = 4  # of each turn


def tokenizer():
    """A byte-level BPE vocabulary as current models have, trained on other texts than asked."""
    from tokenizers import ByteLevelBPETokenizer  # not everybody who runs tests has it

    made = ByteLevelBPETokenizer()
    sources = modules(0, 60)
    texts = [*sources, *english(sources), *(CHINESE[::2] * 20)]
    made.train_from_iterator(texts, vocab_size=12_000, min_frequency=2, show_progress=False)
    return made


def prompts(rng):
    """{kind: a function that makes a text}, of texts that the vocabulary has not seen."""
    sources = modules(60, 110)
    docs, lines = english(sources), [line for s in sources for line in s.splitlines()]

    def code():
        start = rng.randrange(len(lines) - 400)
        return "\n".join(lines[start : start + rng.randint(10, 200)])

    return {
        "english": lambda: "\n\n".join(rng.sample(docs, rng.randint(1, 12))),
        "chinese": lambda: chinese(rng, rng.randint(4, 80)),
        "code": code,
    }


def read(text, **fields):
    """The request that a chat body with this text makes."""
    message = {"role": "user", "content": text}
    asked = RouteRequest()
    asked.read(BodyScan(json.dumps({"messages": [message]} | fields).encode()), b"m")
    asked.model = MODEL
    return asked


def errors(rig, tokenizer, texts, false_every=0):
    """Relative errors of the estimates, in order; each answer tells the truth afterwards, every
    `false_every`-th a tenth of it.
    """
    found = []
    for n, text in enumerate(texts, 1):
        truth = len(tokenizer.encode(text).ids) + TEMPLATE_TOKENS
        rig.now += 20_000_000
        _, lease = rig.balancers[0].open(read(text), rig.now)
        found.append(abs(lease.prompt_tokens / truth - 1))
        lie = false_every and n % false_every == 0
        lease.finish(rig.now, truth // 10 if lie else truth, 10)
    return found
