"""Questions about the words of many files at once: the answers are those of each file by itself."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dlcheck.searching import Skims

WORDS = [b"train", b"main", b"helpers", b"load"]
LINE = st.one_of(
    st.sampled_from(WORDS).map(lambda word: b"import " + word),
    st.sampled_from(WORDS).map(lambda word: b"from pkg import " + word),
    st.sampled_from(WORDS).map(lambda word: b"def " + word + b"(): ..."),
    st.sampled_from(WORDS).map(lambda word: word + b"(1)"),
    st.just(b"from pkg import *"),
)
TEXT = st.lists(LINE, max_size=4).map(b"\n".join)
CHANGES = st.lists(st.tuples(st.sampled_from(["a.py", "b.py", "c.py"]), TEXT), min_size=1, max_size=12)


@given(CHANGES, st.lists(st.sampled_from(WORDS), min_size=1, max_size=2))
def test_each_file_counts_with_the_text_that_it_has_now(changes: list[tuple[str, bytes]], words: list[bytes]) -> None:
    skims = Skims()
    now: dict[str, bytes] = {}
    for file, data in changes:
        now[file] = data
        entries = 0
        for known, text in now.items():
            entries |= skims.entry(known, text)
        for kind in ("words", "imported", "bound", "given"):
            found = [name for name, _ in skims.said(skims.having(kind, words, entries))]
            wanted = [
                name
                for name, said in skims.said(entries)
                if not getattr(said, kind).isdisjoint(words) and said.data == now[name]
            ]
            assert found == wanted
            assert found == sorted(found)


def test_texts_that_nobody_has_any_more_are_let_go() -> None:
    skims = Skims()
    for number in range(2_000):
        skims.entry("a.py", b"x%d" % number)
    skims.tidy()
    entry = skims.entry("a.py", b"x")
    assert entry == 1
    assert skims.having("words", [b"x"], entry) == 1
    assert skims.having("words", [b"x7"], entry) == 0
