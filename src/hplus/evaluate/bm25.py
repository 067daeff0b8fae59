"""BM25, the baseline that matches words alone: bm25s, with a fixed order of ties.

The variant is Lucene's, idf log(1 + (N - df + 1/2) / (df + 1/2)) times
tf / (tf + k1 (1 - b + b length / mean length)); k1 and b are by default Anserini's, with which
BEIR was measured. Each query is scored against every document and sorted here, because bm25s does
not fix the order of equal scores in its top k.

Cost: 50,000 abstracts take 40 seconds to index, most of it tokenising, and 0.4 GB; 20,000 titles
as queries then take 17 seconds.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from functools import cache, lru_cache
from types import ModuleType
from typing import Any

import numpy as np

from hplus.errors import InputError, MissingExtraError
from hplus.texts import checked
from hplus.types import F32, I64
from hplus.units.terms import fold
from hplus.units.words import HAN, is_content, words

_HAN = re.compile(f"[{HAN}]")


class BM25:
    """A corpus ready to be searched by BM25.

    >>> corpus = BM25(["heart failure", "kidney disease", "the failing heart"])
    >>> documents, scores = corpus.search(["failing hearts"], k=2)
    >>> documents.tolist(), (100 * scores).astype(int).tolist()
    ([[2, 0]], [[76, 24]])
    """

    def __init__(self, documents: Sequence[str], *, k1: float = 0.9, b: float = 0.4) -> None:
        if not (0 <= k1 < float("inf") and 0 <= b <= 1):
            raise InputError(f"expected k1 of 0 or more and b in [0, 1], got k1={k1} and b={b}")
        library = _bm25s()
        corpus = [stems(document) for document in checked(documents)]
        self._documents = len(corpus)
        # bm25s cannot index a corpus without a single word.
        self._index: Any = library.BM25(k1=k1, b=b) if any(corpus) else None
        if self._index is not None:
            self._index.index(corpus, create_empty_token=False, show_progress=False)

    def scores(self, query: str) -> F32:
        """The score of every document, f32[documents]; 0 where no stem is shared."""
        asked = stems(query)
        if self._index is None or not asked:
            return np.zeros(self._documents, np.float32)
        scores: F32 = self._index.get_scores(asked)
        return scores

    @property
    def postings(self) -> int:
        """Pairs of a stem and a document that has it."""
        return 0 if self._index is None else len(self._index.scores["data"])

    @property
    def bytes(self) -> int:
        """Bytes of the postings, of their offsets, and of the stems."""
        if self._index is None:
            return 0
        scores, words = self._index.scores, self._index.vocab_dict
        arrays = sum(scores[name].nbytes for name in ("data", "indices", "indptr"))
        return int(arrays) + sum(len(word.encode()) for word in words)

    def met(self, query: str) -> int:
        """How many postings a query reads."""
        if self._index is None:
            return 0
        known, bounds = self._index.vocab_dict, self._index.scores["indptr"]
        ids = [known[stem] for stem in stems(query) if stem in known]
        return sum(int(bounds[i + 1] - bounds[i]) for i in ids)

    def search(self, queries: Sequence[str], k: int) -> tuple[I64, F32]:
        """The k best documents of each query, best first, ties by index.

        Returns document indices i64[n, m] and their scores f32[n, m], m = min(k, documents).
        """
        if k < 1:
            raise InputError(f"expected k of 1 or more, got {k}")
        asked = list(checked(queries))
        width = min(k, self._documents)
        best = np.empty((len(asked), width), np.int64)
        best_scores = np.empty((len(asked), width), np.float32)
        for i, query in enumerate(asked):
            scores = self.scores(query)
            best[i] = _best(scores, width)
            best_scores[i] = scores[best[i]]
        return best, best_scores


def stems(text: str) -> list[str]:
    """What BM25 matches: stems of English content words, pairs of neighbouring Han characters.

    A Han character without a neighbour stays as it is. Texts are folded as terminology is
    (`hplus.units.terms.fold`), so width, decomposed accents and invisible signs do not matter.

    >>> stems("The patients' livers are failing: 0.5 mg/kg")
    ['patient', 'liver', 'fail', '0.5', 'mg', 'kg']
    >>> stems("糖尿病, B超")
    ['糖尿', '尿病', 'b', '超']
    """
    folded = fold(text).text
    found: list[str] = []
    run = ""  # neighbouring Han characters
    run_end = 0
    for start, end in words(folded, han="characters"):
        word = folded[start:end]
        is_han = _HAN.match(word) is not None
        if run and not (is_han and start == run_end):
            found += _pairs(run)
            run = ""
        if is_han:
            run += word
            run_end = end
        elif is_content(word):
            found.append(_stem(word))
    return found + _pairs(run)


def _pairs(run: str) -> list[str]:
    return [run] if len(run) == 1 else [run[i : i + 2] for i in range(len(run) - 1)]


def _best(scores: F32, k: int) -> I64:
    """Indices of the k highest scores, best first, ties by index: i64[k]."""
    if k == 0:
        return np.empty(0, np.int64)
    least = np.partition(scores, len(scores) - k)[len(scores) - k]
    above = np.flatnonzero(scores > least)
    above = above[np.argsort(-scores[above], kind="stable")]
    # Most documents share nothing with the query, and ties at zero need no sorting.
    level = np.flatnonzero(scores == least)[: k - len(above)]
    return np.concatenate([above, level])


@lru_cache(maxsize=1 << 17)
def _stem(word: str) -> str:
    # The cache also saves memory: each stem is one string, however often it occurs.
    stem: str = _stemmer().stemWord(word)
    return stem


@cache
def _stemmer() -> Any:
    try:
        import Stemmer
    except ImportError as missing:
        raise MissingExtraError("BM25 needs PyStemmer: pip install 'hplus[bm25]'") from missing
    return Stemmer.Stemmer("english")


def _bm25s() -> ModuleType:
    try:
        import bm25s
    except ImportError as missing:
        raise MissingExtraError("BM25 needs bm25s: pip install 'hplus[bm25]'") from missing
    # It sets its logger to DEBUG on import, and would write wherever logging is configured.
    logging.getLogger("bm25s").setLevel(logging.WARNING)
    module: ModuleType = bm25s
    return module
