"""How well prompt tokens are estimated without a tokenizer, after 50 answers told the truth.

    PYTHONPATH=src:tests/core python benchmarks/prompt_tokens.py

The tokenizer (`tokenizers`, a byte-level BPE vocabulary of 12,000) is trained here on other texts
than are asked. One row a kind of text, then all three in turn, then the same while every twentieth
usage is a tenth, as from an engine that leaves out what was cached.
"""

import random
from statistics import median, quantiles

import estimates
from route_rig import Rig

REQUESTS, LEARNED = 450, 50


def row(name, tokenizer, texts, false_every=0):
    """A line of the table: errors of the first and of all later requests."""
    seen = estimates.errors(Rig(1), tokenizer, texts, false_every)
    later = seen[LEARNED:]
    cells = (median(seen[:5]), median(later), quantiles(later, n=10)[-1])
    print(f"| {name} | " + " | ".join(f"{100 * cell:.1f} %" for cell in cells) + " |")


def main():
    """Print the table."""
    tokenizer, prompts = estimates.tokenizer(), estimates.prompts(random.Random(3))
    mixed = [prompts[kind]() for _ in range(REQUESTS // 3) for kind in prompts]
    print(f"| prompts | median error, first 5 | after {LEARNED} | 90 % are below |")
    print("|---|---|---|---|")
    for kind in prompts:
        row(kind, tokenizer, [prompts[kind]() for _ in range(REQUESTS)])
    row("all three in turn", tokenizer, mixed)
    row("and 5 % of usages false", tokenizer, mixed, false_every=20)


if __name__ == "__main__":
    main()
