"""The paths of the data port that inference takes, and the names that metrics give them.

An endpoint's id is its place in ENDPOINTS; ids travel in the segment, names on the metrics page.
Unknown paths are `other` (id 0).
"""

from __future__ import annotations

ENDPOINTS = (
    "other",
    "chat_completions",
    "completions",
    "embeddings",
    "responses",
    "messages",
    "rerank",
    "score",
    "classify",
    "pooling",
    "tokenize",
    "detokenize",
    "generate",
    "images",
    "audio",
    "models",
)

# Exact paths; whatever else lies under /v1/ is routed as `other`.
PATHS: dict[bytes, str] = {
    b"/v1/chat/completions": "chat_completions",
    b"/v1/completions": "completions",
    b"/v1/embeddings": "embeddings",
    b"/v1/responses": "responses",
    b"/v1/messages": "messages",
    b"/v1/rerank": "rerank",
    b"/rerank": "rerank",
    b"/v2/rerank": "rerank",
    b"/v1/score": "score",
    b"/score": "score",
    b"/v1/classify": "classify",
    b"/classify": "classify",
    b"/pooling": "pooling",
    b"/v1/pooling": "pooling",
    b"/tokenize": "tokenize",
    b"/detokenize": "detokenize",
    b"/generate": "generate",
}
PREFIXES: tuple[tuple[bytes, str], ...] = (
    (b"/v1/images/", "images"),
    (b"/v1/audio/", "audio"),
)
# Endpoints that make no tokens: their answer is complete when prefill is.
WITHOUT_OUTPUT = frozenset(
    {"embeddings", "rerank", "score", "classify", "pooling", "tokenize", "detokenize"}
)
