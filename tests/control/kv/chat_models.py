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


def turns(messages, mark="<|im_end|>\n"):
    return "".join(f"<|im_start|>{m['role']}\n{m['content']}{mark}" for m in messages)


def forgetful(messages):
    """Qwen 3's way: answers stand in later turns without their reasoning."""
    said = [{**m, "content": m["content"].split("</think>")[-1].lstrip("\n")} for m in messages]
    return turns(said) + "<|im_start|>assistant\n"


def prefilled(messages):
    """As of models that always reason: the answer begins within its reasoning."""
    return turns(messages) + "<|im_start|>assistant\n<think>\n"


def reminding(messages):
    """What follows the last question is not repeated."""
    *earlier, last = messages
    question = [{**last, "content": last["content"] + " /think"}]
    return turns(earlier) + turns(question) + "<|im_start|>assistant\n"


def channelled(messages):
    """gpt-oss's way: before the answer, an analysis that later turns leave out."""
    ends = {"assistant": "<|channel|>final<|message|>"}
    parts = [f"<|start|>{m['role']}{ends.get(m['role'], '<|message|>')}" for m in messages]
    said = [f"{part}{m['content']}<|end|>" for part, m in zip(parts, messages, strict=True)]
    return "<|start|>system<|message|>Be.<|end|>" + "".join(said) + "<|start|>assistant"


def trimming(messages):
    """Gemma 3's way: another name for the role, and a system message within the first question."""
    if messages[0]["role"] == "system":
        system, first, *rest = messages
        messages = [{**first, "content": f"{system['content']}\n\n{first['content']}"}, *rest]
    names = {"assistant": "model"}
    said = [
        {"role": names.get(m["role"], m["role"]), "content": m["content"].strip()} for m in messages
    ]
    return "<s>" + turns(said) + "<|im_start|>model\n"


def late_system(messages):
    """Mistral's other way: a system message within the last question, and answers after a space."""
    system = ""
    if messages[0]["role"] == "system":
        system, messages = messages[0]["content"] + "\n\n", messages[1:]
    *earlier, last = messages
    turn = {"user": "[INST] {}[/INST]", "assistant": " {}</s>"}
    said = [turn[m["role"]].format(m["content"].strip()) for m in earlier]
    return "<s>" + "".join(said) + f"[INST] {system}{last['content']}[/INST]"


class FakeEngine:
    """Tokenizes like vLLM, and stores what it is given in blocks."""

    def __init__(self, tokenizer, template, block_tokens=4):
        self.tokenizer, self.template, self.block_tokens = tokenizer, template, block_tokens
        self.cached = {}  # tokens up to the end of a block -> its hash

    async def tokenize(self, asked):
        text = self.template(asked["messages"]) if "messages" in asked else asked["prompt"]
        return None if text is None else self.tokenizer.encode(text, add_special_tokens=False).ids

    def hit_tokens(self, text):
        """How many tokens of a prompt are cached."""
        ids = self.tokenizer.encode(text, add_special_tokens=False).ids
        ends = range(self.block_tokens, len(ids) + 1, self.block_tokens)
        absent = (end for end in ends if ("{}", tuple(ids[:end])) not in self.cached)
        return next(absent, len(ids) + self.block_tokens) - self.block_tokens

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
