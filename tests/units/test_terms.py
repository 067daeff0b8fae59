"""Terms: `find` against a naive matcher, every rule by a hand-made case, and the override."""

import gzip
import random
import re
import unicodedata
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hplus import files
from hplus.errors import TermsError
from hplus.types import Bool, Tokens, offsets_of
from hplus.units import terms as module
from hplus.units.terms import Terms, fold, override, read_terms

INVISIBLE = "\u00ad\u200b\u200d\ufeff\ufe0f"
EMOJI = "👍👨🏽"
DASHES = "\u2010\u2011\u2012\u2013\u2014\u2015\u2212"


def naive_clusters(text: str) -> list[tuple[int, int]]:
    """What a reader takes for one character: base, marks, invisible; emoji joined by U+200D."""
    clusters: list[tuple[int, int]] = []
    is_emoji = False
    for position, character in enumerate(text):
        is_joined = character in EMOJI and text[position - 1 : position] == "\u200d"
        if clusters and (
            unicodedata.category(character)[0] == "M"
            or character in INVISIBLE
            or (is_emoji and (is_joined or character == "🏽"))
        ):
            clusters[-1] = (clusters[-1][0], position + 1)
        else:
            clusters.append((position, position + 1))
            is_emoji = character in EMOJI
    return clusters


def naive_fold(text: str, *, case: bool) -> str:
    """White space first (a NUL each run), then the whole string at once."""
    spaced = ""
    for start, end in naive_clusters(text):
        visible = "".join(c for c in text[start:end] if c not in INVISIBLE)
        spaced += "\0" if visible.isspace() else visible
    folded = unicodedata.normalize("NFKD", re.sub("\0+", "\0", spaced))
    if case:
        folded = unicodedata.normalize("NFKD", folded.casefold())
    return re.sub(f"[{DASHES}]", "-", folded).replace("’", "'").replace("\0", " ")


def naive_edge(text: str, clusters: list[tuple[int, int]], position: int) -> bool:
    def joins(cluster: tuple[int, int]) -> bool:
        base = next(c for c in text[slice(*cluster)] if c not in INVISIBLE)
        is_word = base.isalnum() or base == "_" or unicodedata.category(base)[0] == "M"
        return is_word and not re.match("[\u3041-\u30ff\u4e00-\u9fff]", base)

    seen = [c for c in clusters if text[slice(*c)].strip(INVISIBLE)]
    before = [c for c in seen if c[1] <= position]
    after = [c for c in seen if c[0] >= position]
    if before and after and joins(before[-1]) and joins(after[0]):
        return False
    left, right = naive_fold(text[:position], case=True), naive_fold(text[position:], case=True)
    cut = [(r"\d[.,]\Z", r"\d"), (r"\d\Z", r"[.,]\d")]
    return not any(re.search(a, left) and re.match(b, right) for a, b in cut)


def naive_find(text: str, patterns: tuple[str, ...]) -> list[tuple[int, int, int]]:
    """From left to right, the longest term that stands here with edges on both sides."""
    clusters = naive_clusters(text)
    edges = {at: naive_edge(text, clusters, at) for cluster in clusters for at in cluster}
    exact: dict[str, int] = {}
    any_case: dict[str, int] = {}
    for index, pattern in enumerate(patterns):
        spelling = naive_fold(pattern, case=False)
        if spelling.isupper():
            exact[spelling] = index
        else:
            any_case[naive_fold(pattern, case=True)] = index
    matches = []
    first = 0
    while first < len(clusters):
        start = clusters[first][0]
        invisible = not text[slice(*clusters[first])].strip(INVISIBLE)
        for last in range(len(clusters), first, -1):
            end = clusters[last - 1][1]
            if invisible or not (edges[start] and edges[end]):
                continue
            found = exact.get(naive_fold(text[start:end], case=False))
            if found is None:
                found = any_case.get(naive_fold(text[start:end], case=True))
            if found is not None:
                matches.append((start, end, found))
                first = last
                break
        else:
            first += 1
    return matches


LETTERS = ["a", "b", "A", "B", "é", "e", "e\u0301", "\u0301", "\u0323", "ａ", "Ａ", "ß", "ﬁ", "_"]
OTHERS = [" ", "  ", "\r\n", "\u00a0", "\t", "1", "2", "½", ".", ",", "-", "–", "'", "’", "´"]
WIDE = ["中", "国", "か", "が", "ガ", "한", "👍", "👍🏽", "👨", "👨\u200d👍", *INVISIBLE]
alphabet = st.sampled_from(LETTERS + OTHERS + WIDE)
small = st.sampled_from(["a", "b", "A", " ", "1", ".", "-", "é", "e\u0301", "中", "\u00ad"])


def strings(characters: st.SearchStrategy[str], *, most: int) -> st.SearchStrategy[str]:
    return st.lists(characters, min_size=1, max_size=most).map("".join)


def cases(characters: st.SearchStrategy[str]) -> st.SearchStrategy[tuple[list[str], str]]:
    terms = st.lists(strings(characters, most=4), min_size=1, max_size=8)
    return terms.flatmap(
        lambda some: st.tuples(
            st.just(some), st.lists(characters | st.sampled_from(some), max_size=14).map("".join)
        )
    )


@settings(max_examples=400, deadline=None)
@given(cases(small) | cases(alphabet))
@example((["a", "a b"], "a ba"))
@example((["AB", "ab"], "ab AB Ab"))
@example((["👨"], "👨\u200d👍 👨"))
@example((["´", "a"], "a´ ´a"))
def test_find_equals_the_naive_matcher(case: tuple[list[str], str]) -> None:
    some, text = case
    terms = Terms([*some, "zz"])
    assert terms.find(text) == naive_find(text, terms.patterns)


@settings(max_examples=150, deadline=None)
@given(cases(alphabet))
def test_matches_stand_in_order_and_spell_their_term(case: tuple[list[str], str]) -> None:
    some, text = case
    terms = Terms([*some, "zz"])
    free = 0
    for start, end, index in terms.find(text):
        assert free <= start < end <= len(text)
        assert fold(text[start:end]).text == fold(terms.patterns[index]).text
        free = end


@settings(max_examples=150, deadline=None)
@given(cases(alphabet))
def test_composed_and_decomposed_texts_have_the_same_matches(case: tuple[list[str], str]) -> None:
    some, text = case
    terms = Terms([*some, "zz"])
    composed, decomposed = (unicodedata.normalize(form, text) for form in ("NFC", "NFD"))
    assert [m[2] for m in terms.find(composed)] == [m[2] for m in terms.find(decomposed)]


@given(st.text(max_size=20), st.text(max_size=40))
def test_no_text_makes_it_fail(term: str, text: str) -> None:
    Terms([term.replace("\0", ""), "zz"]).find(text)


@pytest.mark.parametrize(
    ("terms", "text", "expected"),
    [
        # leftmost, then longest; a longest one without edges leaves the shorter one in place
        (["type 2 diabetes", "diabetes"], "type 2 diabetes", ["type 2 diabetes"]),
        (["a b", "b c d"], "a b c d", ["a b"]),
        (["common cold", "common"], "common colds", ["common"]),
        (["heart", "heart attack", "attack of"], "heart attack of", ["heart attack"]),
        # edges
        (["art"], "heart art arts", ["art"]),
        (["art"], "_art art's (art) art-", ["art", "art", "art"]),
        (["C"], "C++ C_ C", ["C", "C"]),
        (["C++"], "C++ is not C", ["C++"]),
        (["癌症"], "肺癌症状", ["癌症"]),
        (["CT"], "做CT检查", ["CT"]),
        (["テスト"], "このテストが", ["テスト"]),
        (["한국"], "한국어 한국", ["한국"]),
        # numbers
        (["5 mg"], "0.5 mg 15 mg 1,5 mg 5 mg", ["5 mg"]),
        (["type 2"], "type 2.5 type 2, type 2. 5", ["type 2", "type 2"]),
        ([".5 mg"], "0.5 mg or .5 mg", [".5 mg"]),
        (["5 mg"], "０．５ mg", []),
        (["5毫克"], "服0.5毫克或5毫克", ["5毫克"]),
        # case
        (["AIDS"], "AIDS aids Aids", ["AIDS"]),
        (["COX-2"], "COX–2 cox-2", ["COX–2"]),
        (["HbA1c"], "HBA1C hba1c", ["HBA1C", "hba1c"]),
        (["ＡＩＤＳ"], "AIDS aids", ["AIDS"]),
        (["Straße"], "STRASSE straße", ["STRASSE", "straße"]),
        (["σος"], "ΣΟΣ", ["ΣΟΣ"]),
        # one spelling
        (["café au lait"], "cafe\u0301\r\nau\u00a0\tlait", ["cafe\u0301\r\nau\u00a0\tlait"]),
        (["cafe"], "café cafe\u0301 cafe", ["cafe"]),
        (["e\u0323\u0301"], "e\u0301\u0323 ẹ\u0301", ["e\u0301\u0323", "ẹ\u0301"]),
        (["ガ"], "ｶﾞ か\u3099", ["ｶﾞ"]),
        (["fibrosis"], "ﬁbrosis", ["ﬁbrosis"]),
        (["f"], "ﬁ", []),
        (["2"], "½", []),
        (["non-small"], "non\u2011small non\u2212small", ["non\u2011small", "non\u2212small"]),
        (["Crohn's"], "Crohn’s", ["Crohn’s"]),
        (["diabetes"], "\ufeffdia\u00adbe\u200btes", ["dia\u00adbe\u200btes"]),
        (["می‌خواهم"], "میخواهم", ["میخواهم"]),
        (["aspirin"], "Aspirin™", ["Aspirin"]),
        # emoji are whole
        (["👨"], "👨\u200d👩\u200d👧 👨", ["👨"]),
        (["👍"], "👍🏽 👍", ["👍"]),
        (["❤"], "I ❤\ufe0f NY", ["❤\ufe0f"]),
        (["🇪🇫"], "🇩🇪🇫🇷", []),
        # nothing
        (["x"], "", []),
        (["\ud800x"], "\ud800x", ["\ud800x"]),
    ],
)
def test_find(terms: list[str], text: str, expected: list[str]) -> None:
    assert [text[start:end] for start, end, _ in Terms(terms).find(text)] == expected


def test_offsets_are_those_of_the_original() -> None:
    text = "ﬁn  de\u0301ja\u0300–vu: Type\r\n2 diabetes"
    assert Terms(["déjà-vu", "type 2 diabetes"]).find(text) == [(4, 13, 0), (15, 31, 1)]


def test_equal_spellings_are_one_term_and_capitals_another() -> None:
    terms = Terms(["Aids", "aids", "  AIDS ", "", "\u200b"])
    assert terms.patterns == ("Aids", "AIDS")
    assert len(terms) == 2
    assert [index for _, _, index in terms.find("aids AIDS AiDs")] == [0, 1, 0]


def test_the_fingerprint_knows_neither_order_nor_spelling() -> None:
    one = Terms(["Type  2", "COX-2", "café"])
    assert one.fingerprint == Terms(["cafe\u0301", "COX–2", "type 2", "Type 2"]).fingerprint
    assert one.fingerprint != Terms(["Type 2", "cox-2", "café"]).fingerprint
    assert repr(one) == f"Terms(3 terms, {one.fingerprint[:12]})"


def test_twenty_thousand_terms() -> None:
    draw = random.Random(0)
    some = ["".join(draw.choices("abcdeé 1-中", k=draw.randint(2, 12))) for _ in range(20_000)]
    terms = Terms(some)
    text = " ".join(draw.sample(some, 20))
    assert terms.find(text) == naive_find(text, terms.patterns)


# Reading


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("bom", [b"", b"\xef\xbb\xbf"])
def test_read(tmp_path: Path, packed: bool, bom: bytes) -> None:
    data = bom + "type 2 diabetes\r\n\n  HbA1c\t\n癌症".encode()
    path = tmp_path / "terms.any"
    path.write_bytes(gzip.compress(data) if packed else data)
    assert read_terms(path) == ["type 2 diabetes", "HbA1c", "癌症"]
    assert Terms.read(str(path)).patterns == ("type 2 diabetes", "HbA1c", "癌症")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "no terms"),
        (b"\xef\xbb\xbf \n\r\n", "no terms"),
        (b"one\ncaf\xe9\n", r":2: not UTF-8 .* at byte 4\); expected UTF-8"),
        ("one\n\ntwo".encode("utf-16-le"), ":1: contains a NUL"),
        (b"a\nb\n" + b"x" * 201, ":3: 201 characters, but a term has at most 200"),
        (gzip.compress(b"one\ntwo", mtime=0)[:-9], "is damaged: "),
        (b"\x1f\x8bone", "is damaged: "),
    ],
)
def test_read_says_what_is_wrong_and_where(tmp_path: Path, data: bytes, message: str) -> None:
    path = tmp_path / "bad.txt"
    path.write_bytes(data)
    with pytest.raises(TermsError, match=message) as error:
        read_terms(path)
    assert str(path) in str(error.value)


def test_a_file_that_unpacks_to_too_much_is_not_read_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "terms.gz"
    monkeypatch.setattr(files, "LINE_BYTES", 10_000)
    monkeypatch.setattr(module, "FILE_BYTES", 10_000)
    read: list[bytes] = []

    class Watched(gzip.GzipFile):
        def read(self, size: int | None = -1) -> bytes:
            read.append(super().read(size))
            return read[-1]

    monkeypatch.setattr(gzip, "GzipFile", Watched)
    for content in (b"a" * 10_000_000, b"one term\n" * 1_000_000, b"\n" * 10_000_000):
        path.write_bytes(gzip.compress(content))
        read.clear()
        with pytest.raises(TermsError, match="has more than 10000 bytes"):
            Terms.read(path)
        assert 0 < sum(map(len, read)) < 1_000_000
    path.write_bytes(gzip.compress(b"one term\n" * 1_000))
    assert len(Terms.read(path)) == 1


def test_a_missing_file_and_a_folder(tmp_path: Path) -> None:
    with pytest.raises(TermsError, match=r"none\.txt is missing; expected UTF-8"):
        Terms.read(tmp_path / "none.txt")
    with pytest.raises(TermsError, match="is a folder, expected a file"):
        Terms.read(tmp_path)


@pytest.mark.parametrize(
    ("terms", "message"),
    [
        ([], "empty"),
        ([" ", "\u200b"], "empty"),
        ("diabetes", "single text 'diabetes'"),
        (["a", "b\0"], "term 1: contains a NUL"),
        (["x" * 201], "term 0: 201 characters"),
        (["a", 5], "term 1: expected a string, got int"),
    ],
)
def test_terms_that_cannot_be(terms: list[str], message: str) -> None:
    with pytest.raises(TermsError, match=message):
        Terms(terms)


# Override


def batch(*texts: tuple[str, list[tuple[int, int]]]) -> Tokens:
    spans = [span for _, some in texts for span in some]
    return Tokens(
        texts=tuple(text for text, _ in texts),
        ids=np.zeros(len(spans), np.int32),
        spans=np.array(spans, np.int32).reshape(-1, 2),
        offsets=offsets_of([len(some) for _, some in texts]),
    )


def letters(text: str) -> tuple[str, list[tuple[int, int]]]:
    """Every character that is not white space is a token."""
    return text, [(i, i + 1) for i, character in enumerate(text) if not character.isspace()]


def marks(begins: Bool) -> str:
    return "".join("B" if begin else "i" for begin in begins)


def bools(marks: str) -> Bool:
    return np.array([mark == "B" for mark in marks], np.bool_)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("BBBBBBBBB", "BBBiiBBBB"),  # many units become one
        ("Biiiiiiii", "BiBiiBiii"),  # one is split, both remainders stay
        ("BiiBiiBii", "BiBiiBBii"),  # two are split
        ("BiBiiBiii", "BiBiiBiii"),  # it was one already
    ],
)
def test_a_match_is_exactly_one_unit(before: str, after: str) -> None:
    begins = bools(before)
    changed = override(begins, batch(letters("xx abc xxxx")), Terms(["abc"]))
    assert marks(changed) == after
    assert marks(begins) == before, "the given partition is not written to"


def test_straddling_tokens_belong_to_the_match() -> None:
    tokens = batch(("un abc de", [(0, 4), (4, 7), (7, 9)]))
    assert marks(override(bools("BBB"), tokens, Terms(["abc"]))) == "BiB"


def test_a_token_two_matches_touch_belongs_to_the_first() -> None:
    tokens = batch(("aa bb cc", [(0, 4), (4, 5), (5, 8)]))
    assert marks(override(bools("Bii"), tokens, Terms(["aa", "bb"]))) == "BBB"
    inside = batch(("aa bb", [(0, 5)]))
    assert marks(override(bools("B"), inside, Terms(["aa", "bb"]))) == "B"


def test_several_tokens_of_one_character_stay_together() -> None:
    tokens = batch(("x 👍 y", [(0, 1), (2, 3), (2, 3), (2, 3), (4, 5)]))
    assert marks(override(bools("BBiBi"), tokens, Terms(["👍"]))) == "BBiiB"


def test_zero_width_tokens_overlap_nothing() -> None:
    tokens = batch(("abc", [(0, 0), (0, 3), (3, 3)]))
    assert marks(override(bools("Bii"), tokens, Terms(["abc"]))) == "BBB"
    only = batch(("abc", [(0, 0), (1, 1), (3, 3)]))
    assert marks(override(bools("Bii"), only, Terms(["abc"]))) == "Bii"


def test_texts_of_a_batch_do_not_touch() -> None:
    tokens = batch(letters("ab"), ("", []), letters("cd"), letters("xab"), letters("ab y"))
    changed = override(bools("BB" + "Bi" + "Bii" + "Bii"), tokens, Terms(["ab", "b c"]))
    assert marks(changed) == "Bi" + "Bi" + "Bii" + "BiB"


def test_an_empty_batch() -> None:
    assert override(bools(""), batch(), Terms(["a"])).tolist() == []
    assert override(bools(""), batch(("abc", [])), Terms(["abc"])).tolist() == []


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_override_by_the_rule(data: st.DataObject) -> None:
    text = data.draw(st.text(st.sampled_from("ab "), max_size=16))
    cuts = sorted(data.draw(st.sets(st.integers(0, len(text)), max_size=8)))
    tokens = batch((text, list(pairwise(cuts))))
    number = len(tokens.ids)
    begins = np.array(data.draw(st.lists(st.booleans(), min_size=number, max_size=number)), bool)
    begins[:1] = True
    terms = Terms(["a", "ab", "a b", "bb a", "b"])
    owner: list[object] = np.cumsum(begins).tolist()
    for match in terms.find(text):
        for row, (start, end) in enumerate(tokens.spans):
            if max(start, match[0]) < min(end, match[1]) and not isinstance(owner[row], tuple):
                owner[row] = match
    expected = [row == 0 or owner[row] != owner[row - 1] for row in range(number)]
    assert override(begins, tokens, terms).tolist() == expected
