"""The model field of a form, found without building the body anew."""

from hypothesis import given
from hypothesis import strategies as st

from headrace.proxy.multipart import boundary_of, find_field

FORM = (
    b'--XyZ\r\nContent-Disposition: form-data; name="file"; filename="model"\r\n'
    b'Content-Type: audio/wav\r\n\r\n--Xy\r\nname="model"\r\n\r\nno\r\n'
    b'--XyZ\r\ncontent-disposition: form-data; name="model"\r\n\r\nwhisper\r\n--XyZ--\r\n'
)


def test_the_field_is_found_behind_a_file_that_looks_like_it():
    start, end = find_field(FORM, b"XyZ", b"model")
    assert FORM[start:end] == b"whisper"


def test_a_wrong_boundary_or_a_cut_form_has_no_field():
    assert find_field(FORM, b"nope", b"model") is None
    assert find_field(FORM[:-20], b"XyZ", b"model") is None
    assert find_field(b"", b"XyZ", b"model") is None


def test_boundaries_are_read_quoted_or_not():
    assert boundary_of(b"multipart/form-data; boundary=XyZ") == b"XyZ"
    assert boundary_of(b'multipart/form-data; charset=x; Boundary="a b"') == b"a b"
    assert boundary_of(b"multipart/form-data") is None


SAFE = st.binary(max_size=30).filter(lambda b: b"--B" not in b)


@given(st.lists(st.tuples(st.sampled_from([b"file", b"n", b"model"]), SAFE), max_size=5))
def test_the_first_field_of_the_name_is_the_one(parts):
    body = b"".join(
        b'--B\r\nContent-Disposition: form-data; name="%s"\r\n\r\n%s\r\n' % part for part in parts
    )
    body += b"--B--\r\n"
    wanted = next((value for name, value in parts if name == b"model"), None)
    span = find_field(body, b"B", b"model")
    assert (None if span is None else body[span[0] : span[1]]) == wanted
