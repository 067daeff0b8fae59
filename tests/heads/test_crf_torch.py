"""The torch CRF against brute force, against pytorch-crf, and against its numpy twin."""

from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from hplus.errors import InputError  # noqa: E402
from hplus.heads.crf import B, I, O, emissions, viterbi  # noqa: E402
from hplus.heads.crf_torch import LinearChainCRF  # noqa: E402
from hplus.types import offsets_of  # noqa: E402


def random_crf(seed=0, d=4):
    torch.manual_seed(seed)
    crf = LinearChainCRF(d).double()
    with torch.no_grad():
        for parameter in (crf.transitions, crf.start, crf.end):
            parameter.normal_()
    return crf


def random_batch(mask, seed=0):
    """Emissions, legal gold tags, and NaN and nonsense where the mask hides them."""
    generator = torch.Generator().manual_seed(seed)
    emissions = torch.randn(*mask.shape, 3, generator=generator, dtype=torch.float64)
    drawn = torch.randint(0, 3, mask.shape, generator=generator)
    tags = torch.full(mask.shape, -100)
    for row in range(len(mask)):
        before = O
        for at in mask[row].nonzero()[:, 0].tolist():
            tag = int(drawn[row, at])
            before = B if tag == I and before == O else tag
            tags[row, at] = before
    return emissions.masked_fill(~mask[:, :, None], torch.nan), tags


def legal_paths(length):
    for path in product((O, B, I), repeat=length):
        if all(tag != I or before != O for before, tag in pairwise((O, *path))):
            yield path


@torch.no_grad()
def score_of(crf, emissions, path):
    if not path:
        return 0.0
    score = crf.start[path[0]] + crf.end[path[-1]]
    score = score + sum(crf.transitions[before, tag] for before, tag in pairwise(path))
    return float(score + sum(emissions[at, tag] for at, tag in enumerate(path)))


MASKS = {
    "right": [[1, 1, 1, 1, 1], [1, 1, 0, 0, 0], [0, 0, 0, 0, 0], [1, 0, 0, 0, 0]],
    "left": [[0, 0, 1, 1, 1], [0, 0, 0, 0, 1], [0, 0, 0, 0, 0], [0, 1, 1, 1, 1]],
    "holes": [[1, 0, 1, 0, 1], [0, 1, 0, 1, 0], [1, 0, 0, 0, 1], [0, 1, 1, 0, 1]],
}


@pytest.mark.parametrize("length", range(7))
def test_brute_force(length):
    crf = random_crf(length)
    mask = torch.ones(1, length, dtype=torch.bool)
    emissions, tags = random_batch(mask, length)
    paths = list(legal_paths(length))
    scores = torch.tensor([score_of(crf, emissions[0], path) for path in paths]).double()
    total = torch.logsumexp(scores, 0)

    torch.testing.assert_close(crf.log_partition(emissions, mask), total[None])
    gold = score_of(crf, emissions[0], tags[0].tolist())
    torch.testing.assert_close(crf.log_likelihood(emissions, tags, mask), gold - total[None])
    assert crf.decode(emissions, mask) == [list(paths[int(scores.argmax())])]

    expected = torch.zeros(1, length, 3, dtype=torch.float64)
    for path, probability in zip(paths, (scores - total).exp(), strict=True):
        for at, tag in enumerate(path):
            expected[0, at, tag] += probability
    torch.testing.assert_close(crf.marginals(emissions, mask), expected)


def test_the_likelihoods_of_all_legal_tags_sum_to_one():
    crf = random_crf()
    tags = torch.tensor(list(legal_paths(5)))
    mask = torch.ones_like(tags, dtype=torch.bool)
    emissions = random_batch(mask[:1])[0].expand(len(tags), -1, -1)
    likelihoods = crf.log_likelihood(emissions, tags, mask).detach().exp()
    assert float(likelihoods.sum()) == pytest.approx(1)


@pytest.mark.parametrize("seed", range(3))
def test_equals_pytorch_crf(seed):
    torchcrf = pytest.importorskip("torchcrf")
    crf = random_crf(seed)
    lengths = torch.randint(1, 12, (16,), generator=torch.Generator().manual_seed(seed))
    mask = torch.arange(12) < lengths[:, None]
    emissions, tags = random_batch(mask, seed)
    oracle = torchcrf.CRF(3, batch_first=True).double()
    with torch.no_grad():
        oracle.transitions.copy_(crf.transitions)[O, I] = -1e4
        oracle.start_transitions.copy_(crf.start)[I] = -1e4
        oracle.end_transitions.copy_(crf.end)
    plain = emissions.nan_to_num()
    expected = oracle(plain, tags.clamp(min=0), mask=mask, reduction="none")
    likelihood = crf.log_likelihood(emissions, tags, mask)
    torch.testing.assert_close(likelihood, expected)
    assert crf.decode(emissions, mask) == oracle.decode(plain, mask=mask)

    expected.sum().backward()
    likelihood.sum().backward()
    torch.testing.assert_close(crf.transitions.grad, oracle.transitions.grad)
    torch.testing.assert_close(crf.start.grad, oracle.start_transitions.grad)
    torch.testing.assert_close(crf.end.grad, oracle.end_transitions.grad)


def assert_mask_equals_compressed(crf, mask, seed):
    emissions, tags = random_batch(mask, seed)
    likelihood = crf.log_likelihood(emissions, tags, mask)
    partition = crf.log_partition(emissions, mask)
    marginals = crf.marginals(emissions, mask)
    decoded = crf.decode(emissions, mask)
    assert (marginals[~mask] == 0).all()
    for row, kept in enumerate(mask):
        short, short_tags = emissions[row, kept][None], tags[row, kept][None]
        full = torch.ones_like(short_tags, dtype=torch.bool)
        torch.testing.assert_close(likelihood[row], crf.log_likelihood(short, short_tags, full)[0])
        torch.testing.assert_close(partition[row], crf.log_partition(short, full)[0])
        torch.testing.assert_close(marginals[row, kept], crf.marginals(short, full)[0])
        assert decoded[row] == crf.decode(short, full)[0]
        if not kept.any():
            assert (likelihood[row].tolist(), decoded[row]) == (0, [])


@pytest.mark.parametrize("kind", MASKS)
def test_any_mask_equals_the_compressed_sequence(kind):
    assert_mask_equals_compressed(random_crf(), torch.tensor(MASKS[kind]).bool(), 0)


@settings(deadline=None, max_examples=20)
@given(st.integers(1, 4), st.integers(0, 8), st.integers(0, 2**31 - 1))
def test_random_masks_equal_the_compressed_sequence(rows, width, seed):
    mask = torch.rand(rows, width, generator=torch.Generator().manual_seed(seed)) < 0.6
    assert_mask_equals_compressed(random_crf(seed), mask, seed)


@pytest.mark.parametrize("kind", MASKS)
def test_gradients(kind):
    crf = random_crf()
    mask = torch.tensor(MASKS[kind]).bool()
    emissions, tags = random_batch(mask)
    emissions = emissions.nan_to_num().requires_grad_()

    def likelihood(emissions, *_):  # gradcheck moves the parameters in place
        return crf.log_likelihood(emissions, tags, mask)

    inputs = (emissions, crf.transitions, crf.start, crf.end)
    assert torch.autograd.gradcheck(likelihood, inputs)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kind", MASKS)
def test_nothing_is_nan_at_extreme_emissions(kind, dtype):
    mask = torch.tensor(MASKS[kind]).bool()
    emissions, tags = random_batch(mask)
    emissions = (emissions.sign() * 1e4).to(dtype).requires_grad_()
    crf = random_crf().to(dtype)
    likelihood = crf.log_likelihood(emissions, tags, mask)
    likelihood.sum().backward()
    assert likelihood.isfinite().all()
    for gradient in (emissions.grad, crf.transitions.grad, crf.start.grad, crf.end.grad):
        assert gradient.isfinite().all()
    assert (emissions.grad[~mask] == 0).all()
    assert crf.transitions.grad[O, I] == 0
    assert crf.start.grad[I] == 0
    marginals = crf.marginals(emissions, mask)
    torch.testing.assert_close(marginals.sum(-1), mask.to(dtype))


def test_all_masked_and_empty_batches_train_without_harm():
    for shape in ((2, 3), (2, 0), (0, 3)):
        crf = random_crf()
        mask = torch.zeros(shape, dtype=torch.bool)
        emissions = torch.zeros(*shape, 3, dtype=torch.float64, requires_grad=True)
        likelihood = crf.log_likelihood(emissions, torch.full(shape, -100), mask)
        assert likelihood.tolist() == [0] * shape[0]
        likelihood.sum().backward()
        assert (crf.end.grad == 0).all()
        assert crf.decode(emissions, mask) == [[]] * shape[0]
        assert crf.marginals(emissions, mask).shape == (*shape, 3)


def test_a_row_does_not_feel_its_companions():
    crf = random_crf().float()
    mask = torch.tensor(MASKS["holes"]).bool()
    emissions, tags = random_batch(mask)
    emissions = emissions.float()
    together = crf.log_likelihood(emissions, tags, mask)
    for row in range(len(mask)):
        one = slice(row, row + 1)
        alone = crf.log_likelihood(emissions[one], tags[one], mask[one])
        torch.testing.assert_close(together[one], alone, rtol=1e-6, atol=1e-6)


def test_float32_stays_exact_on_a_long_text():
    """In float32 sums, alpha near 10,000 would cost the third decimal."""
    crf, mask = random_crf(), torch.ones(2, 600, dtype=torch.bool)
    emissions, tags = random_batch(mask)
    emissions = (20 * emissions).float()
    single = random_crf().float()
    marginals = single.marginals(emissions, mask)
    assert marginals.dtype == torch.float32
    torch.testing.assert_close(marginals.sum(-1), torch.ones(2, 600), rtol=0, atol=1e-6)
    expected = crf.log_likelihood(emissions, tags, mask)
    likelihood = single.log_likelihood(emissions, tags, mask)
    torch.testing.assert_close(likelihood.double(), expected, rtol=1e-6, atol=0)


@settings(deadline=None, max_examples=30)
@given(st.lists(st.integers(0, 15), max_size=8), st.integers(0, 2**31 - 1))
def test_decode_equals_numpy_viterbi_on_ragged_batches(lengths, seed):
    crf = random_crf(seed).float()
    mask = torch.arange(15) < torch.tensor(lengths, dtype=torch.long)[:, None]
    emissions = random_batch(mask, seed)[0].float()
    offsets = offsets_of(lengths)
    tags, _ = viterbi(crf.to_numpy(), emissions[mask].numpy(), offsets)
    ragged = [tags[first:last].tolist() for first, last in pairwise(offsets)]
    assert crf.decode(emissions, mask) == ragged


def test_marginals_work_in_inference_mode():
    crf, mask = random_crf(), torch.tensor(MASKS["left"]).bool()
    emissions = random_batch(mask)[0]
    with torch.inference_mode():
        inside = crf.marginals(emissions + 0, mask & True)
    torch.testing.assert_close(inside, crf.marginals(emissions, mask))


@pytest.mark.parametrize(
    ("tags", "message"),
    [
        ([[B, I, O], [O, I, I]], "tag I at row 1, position 1 follows O"),
        ([[B, I, O], [I, I, O]], "tag I at row 1, position 0 begins the text"),
        ([[B, 3, O], [O, O, O]], "tag 3 at row 0, position 1: expected 0"),
        ([[B, -1, O], [O, O, O]], "tag -1 at row 0, position 1: expected 0"),
    ],
)
def test_illegal_gold_tags_are_named(tags, message):
    tags = torch.tensor(tags)
    with pytest.raises(InputError, match=message):
        random_crf().log_likelihood(torch.zeros(2, 3, 3), tags, torch.ones_like(tags).bool())


def test_an_illegal_tag_is_named_by_its_place_in_the_padded_row():
    tags, mask = torch.tensor([[9, O, 9, I]]), torch.tensor([[0, 1, 0, 1]]).bool()
    with pytest.raises(InputError, match="row 0, position 3 follows O"):
        random_crf().log_likelihood(torch.zeros(1, 4, 3), tags, mask)


def test_numpy_round_trip():
    crf = random_crf().float()
    again = LinearChainCRF.from_numpy(crf.to_numpy())
    for name, parameter in crf.state_dict().items():
        assert torch.equal(parameter, again.state_dict()[name])
    frozen = crf.to_numpy()
    with torch.no_grad():
        crf.start.add_(1)
    assert np.array_equal(frozen.start, again.start.detach().numpy())


def test_training_learns_a_rule():
    """Each state says its tag outright; a few steps suffice."""
    torch.manual_seed(0)
    mask = torch.ones(20, 7, dtype=torch.bool)
    _, tags = random_batch(mask)
    states = torch.nn.functional.one_hot(tags, 3).float()
    crf = LinearChainCRF(3)
    optimiser = torch.optim.Adam(crf.parameters(), lr=0.2)
    for _ in range(30):
        optimiser.zero_grad()
        (-crf.log_likelihood(crf.emit(states), tags, mask).mean()).backward()
        optimiser.step()
    assert crf.decode(crf.emit(states), mask) == tags.tolist()


def test_a_hidden_layer_gives_the_same_scores_in_numpy_and_survives_the_way_back():
    torch.manual_seed(3)
    module = LinearChainCRF(6, hidden=5)
    lengths = [4, 0, 1, 7]
    states = torch.randn(len(lengths), 7, 6)
    mask = torch.arange(7)[None, :] < torch.tensor(lengths)[:, None]
    scores = module.emissions(states, mask)
    crf = module.to_numpy()
    flat = emissions(crf, states[mask].numpy(), offsets_of(lengths))
    np.testing.assert_allclose(flat, scores[mask].detach().numpy(), atol=1e-5)
    again = LinearChainCRF.from_numpy(crf)
    torch.testing.assert_close(again.emissions(states, mask), scores)


def test_a_hidden_layer_sees_the_neighbours_and_nothing_further():
    torch.manual_seed(4)
    module = LinearChainCRF(6, hidden=5)
    states = np.random.default_rng(0).normal(size=(9, 6)).astype(np.float32)
    before = emissions(module.to_numpy(), states, offsets_of([5, 4]))
    changed = states.copy()
    changed[4] += 1  # the last token of the first text
    after = emissions(module.to_numpy(), changed, offsets_of([5, 4]))
    moved = np.flatnonzero(np.abs(after - before).max(axis=1) > 1e-6)
    assert moved.tolist() == [3, 4]
