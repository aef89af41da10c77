import xxhash
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.hashing import hash64


@given(st.binary(max_size=600), st.integers(0, 2**64 - 1))
def test_hash_equals_the_xxhash_package(data, seed):
    assert hash64(data, seed) == xxhash.xxh64_intdigest(data, seed)
