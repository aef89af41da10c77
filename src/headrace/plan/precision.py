"""What a weight and a KV element weigh in each number type."""

from __future__ import annotations

from headrace.plan.names import lookup

# Group-quantised int4 (AWQ, GPTQ) keeps a 16-bit scale and a 4-bit zero point for every 128
# weights; int8 and fp8 keep one scale a channel or block, under 0.1 %.
_INT4_GROUP = 128

_WEIGHT_BYTES = {
    "fp16": 2.0,
    "bf16": 2.0,
    "fp8": 1.0,
    "int8": 1.0,
    "int4": (4 + (16 + 4) / _INT4_GROUP) / 8,
}
_KV_BYTES = {"fp16": 2.0, "bf16": 2.0, "fp8": 1.0, "int8": 1.0, "int4": 0.5}
_ALIASES = {"float16": "fp16", "half": "fp16", "bfloat16": "bf16"}

DTYPES = tuple(_WEIGHT_BYTES)
WIDE_BYTES = 2.0  # embeddings, output projection and norms stay in 16 bit under every quantisation


def dtype_named(name: str, what: str, auto: str) -> str:
    """The type in its short spelling, `auto` being what the name auto means.

    Raises PlanError with the nearest names when there is none of that name.
    """
    if name.lower() == "auto":
        return auto
    return lookup(_ALIASES.get(name.lower(), name), {d: d for d in DTYPES}, what)


def weight_element_bytes(dtype: str) -> float:
    """Bytes of one weight of a quantised layer, its share of the scales included."""
    return _WEIGHT_BYTES[dtype]


def kv_element_bytes(dtype: str) -> float:
    """Bytes of one element of the KV cache."""
    return _KV_BYTES[dtype]
