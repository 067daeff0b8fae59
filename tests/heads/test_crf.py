"""The numpy CRF against brute force over all legal tag sequences."""

from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hplus.errors import InputError
from hplus.heads.crf import CRF, B, I, O, emissions, viterbi
from hplus.types import offsets_of


def random_crf(seed=0, d=5):
    rng = np.random.default_rng(seed)
    shapes = (3, d), (3,), (3, 3), (3,), (3,)
    return CRF(*(rng.normal(size=shape).astype(np.float32) for shape in shapes))


def random_emissions(length, seed=0, scale=1.0):
    return (scale * np.random.default_rng(seed).normal(size=(length, 3))).astype(np.float32)


def zero_crf():
    return CRF(*(np.zeros(shape, np.float32) for shape in ((3, 1), (3,), (3, 3), (3,), (3,))))


def legal_paths(length):
    for path in product((O, B, I), repeat=length):
        if all(tag != I or before != O for before, tag in pairwise((O, *path))):
            yield path


def score_of(crf, emissions, path):
    if not path:
        return 0.0
    score = float(crf.start[path[0]]) + float(crf.end[path[-1]])
    score += sum(float(crf.transitions[before, tag]) for before, tag in pairwise(path))
    return score + sum(float(emissions[at, tag]) for at, tag in enumerate(path))


def brute_force(crf, emissions):
    """Best path and margin; of tied paths the lowest read from the end."""
    scored = [(score_of(crf, emissions, path), path) for path in legal_paths(len(emissions))]
    scored.sort(key=lambda pair: (-pair[0], pair[1][::-1]))
    return scored[0][1], scored[0][0] - scored[1][0] if len(scored) > 1 else np.inf


@pytest.mark.parametrize("length", range(7))
@pytest.mark.parametrize("seed", range(5))
def test_path_and_margin_equal_brute_force(length, seed):
    crf, scores = random_crf(seed), random_emissions(length, seed)
    tags, margin = viterbi(crf, scores, offsets_of([length]))
    path, expected = brute_force(crf, scores)
    assert tuple(tags) == path
    assert margin == pytest.approx([expected], rel=1e-5, abs=1e-6)
    assert (tags.dtype, margin.dtype) == (np.uint8, np.float32)


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_ties_are_broken_as_documented(data):
    """Small whole numbers tie often and sum exactly."""
    length = data.draw(st.integers(1, 5))
    whole = st.integers(-1, 1)

    def draw(*shape):
        size = int(np.prod(shape))
        drawn = data.draw(st.lists(whole, min_size=size, max_size=size))
        return np.array(drawn, np.float32).reshape(shape)

    crf = CRF(draw(3, 1), draw(3), draw(3, 3), draw(3), draw(3))
    scores = draw(length, 3)
    tags, margin = viterbi(crf, scores, offsets_of([length]))
    assert (tuple(tags), float(margin[0])) == brute_force(crf, scores)


def test_all_equal_scores_give_o_everywhere_and_no_margin():
    tags, margin = viterbi(zero_crf(), np.zeros((4, 3), np.float32), offsets_of([4]))
    assert tags.tolist() == [O, O, O, O]
    assert margin.tolist() == [0.0]


@settings(deadline=None, max_examples=50)
@given(st.lists(st.integers(0, 12), max_size=9), st.integers(0, 2**32 - 1))
def test_a_text_does_not_feel_its_companions(lengths, seed):
    crf, offsets = random_crf(seed), offsets_of(lengths)
    scores = random_emissions(int(offsets[-1]), seed)
    tags, margin = viterbi(crf, scores, offsets)
    assert len(margin) == len(lengths)
    for text, (first, last) in enumerate(pairwise(offsets)):
        alone, alone_margin = viterbi(crf, scores[first:last], offsets_of([last - first]))
        assert tags[first:last].tolist() == alone.tolist()
        assert margin[text] == alone_margin[0]


@pytest.mark.parametrize("sign", [-1, 1])
def test_extreme_emissions_never_buy_an_illegal_path(sign):
    rng = np.random.default_rng(3)
    scores = sign * np.where(rng.random((200, 3)) < 0.5, 1e4, -1e4).astype(np.float32)
    scores[:, I] = 1e4
    tags, margin = viterbi(random_crf(), scores, offsets_of([0, 150, 1, 49]))
    for first, last in ((0, 150), (150, 151), (151, 200)):
        before = np.concatenate([[O], tags[first : last - 1]])
        assert not ((tags[first:last] == I) & (before == O)).any()
    assert margin[0] == np.inf
    assert np.isfinite(margin[1:]).all()
    assert (margin >= 0).all()


def test_illegal_transitions_are_never_read():
    crf, scores = random_crf(), random_emissions(30)
    other = CRF(crf.weight, crf.bias, crf.transitions.copy(), crf.start.copy(), crf.end)
    other.transitions[O, I] = other.start[I] = 1e6
    tags, margin = viterbi(crf, scores, offsets_of([10, 20]))
    other_tags, other_margin = viterbi(other, scores, offsets_of([10, 20]))
    assert tags.tolist() == other_tags.tolist()
    assert margin.tolist() == other_margin.tolist()


def test_the_margin_bounds_the_noise_a_path_can_bear():
    """Noise of eps per emission moves a path by at most n eps, so n eps < margin / 2 is safe."""
    crf, scores, rng = random_crf(1), random_emissions(8, 1), np.random.default_rng(0)
    tags, margin = viterbi(crf, scores, offsets_of([8]))
    eps = float(margin[0]) / 2 / 8 * 0.99
    for _ in range(50):
        noise = rng.choice([-eps, eps], size=scores.shape).astype(np.float32)
        assert viterbi(crf, scores + noise, offsets_of([8]))[0].tolist() == tags.tolist()


def test_emissions_are_an_affine_map_of_states():
    crf = random_crf(d=4)
    states = np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32)
    scores = emissions(crf, states, np.array([0, len(states)]))
    assert scores.dtype == np.float32
    expected = [
        [float(w @ h + b) for w, b in zip(crf.weight, crf.bias, strict=True)] for h in states
    ]
    np.testing.assert_allclose(scores, expected, rtol=1e-5, atol=1e-6)
    assert emissions(crf, states[:0], np.array([0, 0])).shape == (0, 3)


def test_errors_name_both_numbers():
    crf = random_crf(d=4)
    with pytest.raises(InputError, match=r"width 4, got shape \(2, 7\)"):
        emissions(crf, np.zeros((2, 7), np.float32), np.array([0, 2]))
    with pytest.raises(InputError, match=r"offsets end at 5.*got \(4, 3\)"):
        viterbi(crf, np.zeros((4, 3), np.float32), offsets_of([2, 3]))
    with pytest.raises(InputError, match=r"CRF bias .*\(3,\).*shape \(4,\)"):
        CRF(crf.weight, np.zeros(4, np.float32), crf.transitions, crf.start, crf.end)
    with pytest.raises(InputError, match="CRF start must be finite"):
        CRF(crf.weight, crf.bias, crf.transitions, crf.start - np.float32(np.inf), crf.end)
