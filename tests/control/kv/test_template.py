"""A template read backwards, on text that comes in any pieces."""

from hypothesis import given
from hypothesis import strategies as st

from headrace.control.kv.template import OPENING, PROMPT, UNREAD, Ending, Opening, State, Template

TEMPLATE = Template(
    [Opening(b"<s>", PROMPT), Opening(b"<s>[u]", "user"), Opening(b"<s>[s]", "system")],
    {
        "user": [Ending(b"[/u]", "assistant"), Ending(b"[/u][think]", "assistant")],
        "assistant": [Ending(b"[e][u]", "user"), Ending(b"[/s][e][u][u]", "user")],
        "system": [Ending(b"[/s][u]", "user"), Ending(b"[think]", UNREAD)],
    },
)
pieces = st.lists(
    st.sampled_from(
        [b"<s>", b"<s>[u]", b"[u]", b"[/u]", b"[s]", b"[/s]", b"[e]", b"[think]", b"ab", b"["]
    )
)


def read(text, cuts=()):
    """State and keys after the text, cut at the given places."""
    state, keys = State(), []
    for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True):
        state, found = TEMPLATE.read(state, text[a:b])
        keys += found
        if state is None:
            return None, keys
    return state, keys


@given(pieces, st.data())
def test_where_a_text_is_cut_changes_nothing(parts, data):
    text = b"".join(part * 90 if part == b"ab" else part for part in parts)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=5)))
    assert read(text, cuts) == read(text)


def test_the_beginning_waits_until_it_is_clear():
    assert read(b"")[0] == State(OPENING, b"")
    assert read(b"<s>[")[0] == State(OPENING, b"<s>[")
    assert read(b"<s>[u]x")[0].role == "user"
    assert read(b"<s>[x")[0].role == PROMPT


def test_of_two_endings_the_one_that_begins_first_counts_wherever_the_text_is_cut():
    text = b"<s>[u]x[/u]y[/s][e][u]"
    assert read(text)[0].pending == b"[/s][e][u]"
    assert read(text + b"[u]") == read(text + b"[u]", [len(text)])
    assert read(text + b"z")[0].role == "user"


def test_behind_a_mark_nothing_is_read_and_what_stands_before_it_counts():
    text = b"<s>[s]" + b"ab" * 200
    assert read(text + b"[think]" + b"ab" * 200) == (None, read(text)[1])
    assert len(read(text)[1]) == 1


def test_another_beginning_is_no_prompt_of_it():
    assert read(b"[u]x") == (None, [])


def test_the_longest_ending_counts_and_a_half_one_waits():
    assert read(b"<s>[u]x[/u][think]")[0].role == "assistant"
    waiting = read(b"<s>[u]x[/")[0]
    assert (waiting.role, waiting.pending) == ("user", b"[/")
    assert read(b"<s>[u]x[/u]")[0].pending == b"[/u]"
    after, _ = TEMPLATE.read(waiting, b"y")
    assert (after.role, after.pending) == ("user", b"")
