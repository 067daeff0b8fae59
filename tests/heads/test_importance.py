"""Importance is positive, stable, and equal to torch and to plain loops."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hplus.errors import InputError
from hplus.heads.importance import DocumentFrequency, Idf, ImportanceHead, fit_idf
from hplus.types import offsets_of


def softplus(values):
    """The head at d = 1 with weight 1 and bias 0."""
    states = np.asarray(values, np.float32)[:, None]
    return ImportanceHead(np.ones(1, np.float32), 0.0).importance(states)


def ragged(texts):
    ids = np.array([token for text in texts for token in text], np.int32)
    return ids, offsets_of([len(text) for text in texts])


def test_the_head_is_softplus_of_an_affine_map():
    rng = np.random.default_rng(0)
    weight, states = rng.normal(size=4).astype(np.float32), rng.normal(size=(9, 4))
    scores = ImportanceHead(weight, 0.25).importance(states.astype(np.float32))
    assert scores.dtype == np.float32
    expected = [math.log1p(math.exp(float(h @ weight) + 0.25)) for h in states]
    np.testing.assert_allclose(scores, expected, rtol=1e-5)


def test_softplus_is_strictly_positive_and_finite():
    scores = softplus([-3e38, -1e4, -104, -100, -88, -87, 0, 88, 100, 1e4, 3e38])
    assert (scores > 0).all()
    assert np.isfinite(scores).all()
    assert (np.diff(scores) >= 0).all()
    assert len(softplus([])) == 0


def test_softplus_equals_torch():
    torch = pytest.importorskip("torch")
    large = np.array([20.5, 33.3, 88.8, 100, 12345.6, 1e30], np.float32)
    expected = torch.nn.functional.softplus(torch.tensor(large)).numpy()
    assert softplus(large).tolist() == expected.tolist() == large.tolist()
    usual = np.linspace(-80, 20, 2001).astype(np.float32)
    expected = torch.nn.functional.softplus(torch.tensor(usual).double()).numpy()
    np.testing.assert_allclose(softplus(usual), expected, rtol=1e-6)


def plain_idf(texts, vocabulary_size):
    table = []
    for token in range(vocabulary_size):
        df = sum(token in text for text in texts)
        table.append(math.log(1 + (len(texts) - df + 0.5) / (df + 0.5)))
    return table


TEXTS = st.lists(st.lists(st.integers(0, 9), max_size=8), max_size=8)


@settings(deadline=None, max_examples=100)
@given(TEXTS)
def test_fit_idf_equals_plain_loops(texts):
    table = fit_idf(*ragged(texts), vocabulary_size=10).table
    assert table.dtype == np.float32
    assert (table > 0).all()
    np.testing.assert_allclose(table, plain_idf(texts, 10), rtol=1e-6)


@settings(deadline=None, max_examples=50)
@given(TEXTS, st.integers(0, 8))
def test_a_stream_equals_one_batch(texts, cut):
    frequency = DocumentFrequency(10)
    frequency.add(*ragged(texts[:cut]))
    frequency.add(*ragged(texts[cut:]))
    whole = fit_idf(*ragged(texts), vocabulary_size=10)
    assert frequency.texts == len(texts)
    assert frequency.idf().table.tolist() == whole.table.tolist()


def test_a_token_in_every_text_still_counts():
    frequency = DocumentFrequency(1)
    frequency.texts = frequency.counts[0] = 10**9
    assert frequency.idf().table[0] > 0
    assert DocumentFrequency(1).idf().table[0] == pytest.approx(math.log(2))


def test_idf_is_looked_up_per_token():
    idf = Idf(np.array([0.5, 2, 3], np.float32))
    assert idf.importance(np.array([2, 2, 0], np.int32)).tolist() == [3, 3, 0.5]
    assert idf.importance(np.array([], np.int32)).shape == (0,)


@pytest.mark.parametrize("bad", [-1, 3])
def test_ids_outside_the_table_are_refused(bad):
    ids = np.array([0, bad], np.int32)
    with pytest.raises(InputError, match=f"from {min(bad, 0)} to {max(bad, 0)}.*3 entries"):
        Idf(np.ones(3, np.float32)).importance(ids)
    with pytest.raises(InputError, match="3 entries"):
        fit_idf(ids, offsets_of([2]), 3)


def test_other_wrong_input_is_named():
    with pytest.raises(InputError, match="offsets end at 3, but there are 1 token ids"):
        fit_idf(np.zeros(1, np.int32), offsets_of([3]), 5)
    with pytest.raises(InputError, match=r"token id 1 has 0\.0"):
        Idf(np.array([1, 0], np.float32))
