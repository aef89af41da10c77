"""Tokenizers and chat templates as they are used, small; and an engine that tokenizes with them."""

import json

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from headrace.control.kv.events import Stored

TEXTS = [
    "How does the river flow? Über Brücken, 流れる川の水は, 🙂 and so on.\n\tif x == 1:\r\n"
] * 4
SPECIAL = ["<s>", "</s>", "<|im_start|>", "<|im_end|>", "[INST]", "[/INST]"]


def byte_level(path):
    """BPE over bytes, as of GPT-2, Llama 3 and Qwen."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False
    )
    made.train_from_iterator(TEXTS, trainer)
    made.save(str(path))
    return made


def sentence_piece(path):
    """BPE over words with byte fallback, as of Llama 2 and Gemma."""
    vocab = {token: i for i, token in enumerate(SPECIAL)}
    for piece in [f"<0x{byte:02X}>" for byte in range(256)] + list("▁abcdefghijklmnopqrstuvwxyz?."):
        vocab[piece] = len(vocab)
    made = Tokenizer(models.BPE(vocab, [], byte_fallback=True, unk_token=None))
    made.add_special_tokens(SPECIAL)
    made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never", split=False)
    made.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    made.save(str(path))
    return made


def chatml(messages, generate=True):
    """Qwen's way: a system message of its own where there is none."""
    if messages[0]["role"] != "system":
        messages = [{"role": "system", "content": "You are helpful."}, *messages]
    parts = [f"<|im_start|>{m['role']}\n{m['content']}<|im_end|>\n" for m in messages]
    return "".join(parts) + ("<|im_start|>assistant\n" if generate else "")


def bracketed(messages, generate=True):
    """Mistral's way: no roles, and no system messages at all."""
    if messages[0]["role"] == "system":
        return None
    turn = {"user": "[INST] {} [/INST]", "assistant": " {}</s>"}
    return "<s>" + "".join(turn[m["role"]].format(m["content"]) for m in messages)


class FakeEngine:
    """Tokenizes like vLLM, and stores what it is given in blocks."""

    def __init__(self, tokenizer, template, block_tokens=4):
        self.tokenizer, self.template, self.block_tokens = tokenizer, template, block_tokens
        self.cached = {}  # tokens up to the end of a block -> its hash

    async def tokenize(self, asked):
        text = self.template(asked["messages"]) if "messages" in asked else asked["prompt"]
        return None if text is None else self.tokenizer.encode(text, add_special_tokens=False).ids

    def store(self, text, **more):
        """The event of a prompt's new blocks; None if all were there."""
        ids = self.tokenizer.encode(text, add_special_tokens=False).ids
        size, seed = self.block_tokens, json.dumps(more, sort_keys=True)
        ends = range(size, len(ids) + 1, size)
        names = [(seed, tuple(ids[:end])) for end in ends]
        new = [i for i, name in enumerate(names) if name not in self.cached]
        if not new:
            return None
        for name in names:
            self.cached.setdefault(name, len(self.cached) + 1000)
        hashes = [self.cached[name] for name in names]
        first = new[0]
        return Stored(
            block_hashes=hashes[first:],
            parent_block_hash=hashes[first - 1] if first else None,
            token_ids=ids[first * size : len(hashes) * size],
            block_size=size,
            **more,
        )
