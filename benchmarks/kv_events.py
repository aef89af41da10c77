"""What reading KV events costs, and what it tells a gateway about a real engine.

    PYTHONPATH=src python benchmarks/kv_events.py
    PYTHONPATH=src python benchmarks/kv_events.py --tokenizer FOLDER --model tiny \\
        --engine http://127.0.0.1:8100 5557 5558 --engine http://127.0.0.1:8101 5559 5560

Without engines: events of chats per second and bytes for a known block. With engines (their events
and replay ports; vLLM with `--enable-prompt-tokens-details`): two gateways take the turns of each
chat by chance, and a gateway's knowledge is held against what the engine then found in its cache.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import random
import sys
import tempfile
import time
import tracemalloc
from pathlib import Path

import aiohttp
import msgspec
from rig.serving import Serving

from headrace.control.kv.chains import Chains, Reading
from headrace.control.kv.events import Stored, read
from headrace.control.kv.template import PROMPT, Ending, Opening, Template
from headrace.control.kv.vocabulary import Vocabulary
from headrace.core.scan import prefix_root

BLOCK_TOKENS = 16
CHATS, TURNS, TURN_WORDS = 200, 8, 120
REAL_CHATS, REAL_TURNS, REAL_WORDS, ANSWER_TOKENS = 20, 4, 40, 30
FIRST_WORDS = 150
WORDS = Path(__file__).read_text().split()
START, END = b"<|im_start|>", b"<|im_end|>\n<|im_start|>"


def small_tokenizer(folder: Path):
    """A byte-level BPE, trained on this file."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=2000,
        special_tokens=["<|im_start|>", "<|im_end|>"],
        initial_alphabet=alphabet,
        show_progress=False,
    )
    made.train_from_iterator([" ".join(WORDS)], trainer)
    made.save(str(folder / "tokenizer.json"))
    return made


def messages_of(tokenizer, rng):
    """Payloads as an engine sends them: each chat grows by a turn, each turn is one message."""
    payloads, names = [], 0
    for _ in range(CHATS):
        text, parent, done = "<|im_start|>user\n", None, 0
        for turn in range(TURNS):
            role = "user" if turn % 2 else "assistant"
            text += " ".join(rng.choices(WORDS, k=TURN_WORDS))
            text += f"<|im_end|>\n<|im_start|>{role}\n"
            ids = tokenizer.encode(text).ids
            end = len(ids) // BLOCK_TOKENS * BLOCK_TOKENS
            hashes = list(range(names, names + (end - done) // BLOCK_TOKENS))
            event = Stored(hashes, parent, ids[done:end], BLOCK_TOKENS)
            tagged = {"type": "BlockStored", **msgspec.to_builtins(event)}
            payloads.append(msgspec.msgpack.encode([0.0, [tagged], 0]))
            names, parent, done = names + len(hashes), names + len(hashes) - 1, end
    return payloads, names


def new_chains(vocabulary):
    roles = {"user": "assistant", "assistant": "user"}
    template = Template(
        [Opening(START + b"user\n", "user"), Opening(b"", PROMPT)],
        {a: [Ending(END + b.encode() + b"\n", b)] for a, b in roles.items()},
    )
    chains = Chains(lambda lora, salt: (prefix_root(b"m", None, salt),))
    chains.reading = Reading(vocabulary, template)
    return chains


def reading():
    with tempfile.TemporaryDirectory() as folder:
        tokenizer = small_tokenizer(Path(folder))
        vocabulary = Vocabulary(folder)
    payloads, blocks = messages_of(tokenizer, random.Random(1))
    for name, chains in (("counted", Chains(lambda *_: ())), ("read", new_chains(vocabulary))):
        start = time.perf_counter()
        for payload in payloads:
            for event in read(payload):
                chains.store(event)
        seconds = time.perf_counter() - start
        print(f"{name}: {seconds / blocks * 1e6:.1f} us a block of {BLOCK_TOKENS} tokens")
    tracemalloc.start()
    chains = new_chains(vocabulary)
    for payload in payloads:
        for event in read(payload):
            chains.store(event)
    gc.collect()
    print(f"{tracemalloc.get_traced_memory()[0] / blocks:.0f} bytes for a known block")


def gateway_over(engines, model, tokenizer):
    """One of two gateways; without a tokenizer it does not listen."""
    replicas = [
        {"url": url, "kv_events_port": int(events), "kv_replay_port": int(replay)}
        for url, events, replay in engines
    ]
    config = {"replicas": replicas, "routing": {"gateways": 2}}
    if tokenizer:
        config["control"] = {"kv_tokenizers": [{"model": model, "path": tokenizer}]}
    else:
        config["replicas"] = [entry["url"] for entry in replicas]
    return Serving(config)


async def ready(gateway, session):
    """Wait until all engines are."""
    while True:
        try:
            async with session.get(gateway.admin + "/replicas") as answer:
                rows = (await answer.json())["replicas"]
            if all(row["state"] == "ready" for row in rows):
                return
        except aiohttp.ClientError:
            pass
        await asyncio.sleep(0.2)


async def talk(args, tokenizer):
    """Prompt tokens that the engines found in their caches, and of them those that were known."""
    gateways = [gateway_over(args.engine, args.model, tokenizer) for _ in range(2)]
    rng = random.Random(args.seed + bool(tokenizer))
    cached = known = 0
    try:
        async with aiohttp.ClientSession() as session:
            for gateway in gateways:
                await ready(gateway, session)
            await asyncio.sleep(2)  # until the subscriptions have arrived
            for _ in range(REAL_CHATS):
                said = [{"role": "user", "content": " ".join(rng.choices(WORDS, k=FIRST_WORDS))}]
                for _ in range(REAL_TURNS):
                    asked = {"model": args.model, "messages": said, "max_tokens": ANSWER_TOKENS}
                    url = rng.choice(gateways).data + "/v1/chat/completions"
                    debug = {"x-headrace-debug": "1"}
                    async with session.post(url, json=asked, headers=debug) as answer:
                        answer.raise_for_status()
                        decision = answer.headers["x-headrace-decision"]
                        out = await answer.json()
                    matched = int(decision.partition("matched_tokens=")[2].partition(";")[0])
                    found = out["usage"]["prompt_tokens_details"]["cached_tokens"]
                    cached, known = cached + found, known + min(matched, found)
                    said.append(out["choices"][0]["message"])
                    words = " ".join(rng.choices(WORDS, k=REAL_WORDS))
                    said.append({"role": "user", "content": words})
                    await asyncio.sleep(0.1)
    finally:
        for gateway in gateways:
            gateway.stop()
    return cached, known


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--engine", nargs=3, action="append", metavar=("URL", "EVENTS", "REPLAY"))
    parser.add_argument("--model")
    parser.add_argument("--tokenizer")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    if not args.engine:
        reading()
        return 0
    for name, tokenizer in (("without events", None), ("events read", args.tokenizer)):
        cached, known = asyncio.run(talk(args, tokenizer))
        print(f"{name}: {cached} prompt tokens were cached, {known} of them known before")
    return 0


if __name__ == "__main__":
    sys.exit(main())
