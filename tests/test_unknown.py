"""What the tokenizer does not know matches nothing, and the user is told."""

import json
import warnings
from pathlib import Path

import numpy as np
import pytest

from hplus import HPlus, Index, InputError
from hplus.errors import UnknownTokensWarning
from tiny import write_tiny

KNOWN = "chronic kidney disease"
# Han characters that the tiny vocabulary lacks: one unknown token each.
UNKNOWN = "骨折复位"
OTHER = "胃癌手术"


@pytest.fixture(scope="module", params=["runs", "words", "tokens"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> HPlus:
    return HPlus(write_tiny(tmp_path_factory.mktemp("tiny")), units=request.param)


@pytest.mark.parametrize("settings", [{}, {"pooling": "cls"}, {"mean_over": "text"}])
def test_unknown_texts_match_nothing_in_any_view(model: HPlus, settings: dict[str, str]) -> None:
    model = HPlus(model.checkpoint.source, units=model.recipe.units, **settings)
    scores = model.score(UNKNOWN, [UNKNOWN, OTHER, KNOWN, f"{KNOWN} {OTHER}"])
    assert scores.fused.tolist() == [0, 0, 0, 0]
    for view in ("global", "phrase", "lexical"):
        assert scores.views()[view].tolist() == [0, 0, 0, 0], view


def test_unknown_tokens_leave_what_is_known_beside_them(model: HPlus) -> None:
    encoded = model.encode_document([f"{KNOWN} {UNKNOWN}"])
    assert np.linalg.norm(encoded.global_[0]) == pytest.approx(1)
    lengths = np.linalg.norm(encoded.units.vectors, axis=1)
    spans = [encoded.units.spans_of(s) for s in range(len(lengths))]
    for length, ((start, end),) in zip(lengths, spans, strict=True):
        assert length == pytest.approx(1 if start < len(KNOWN) else 0)
        assert end > start
    # Importance is conserved: every token is in a unit.
    assert encoded.coverage.kept == pytest.approx(encoded.coverage.importance)


def test_a_unit_with_a_known_token_is_that_token_s_mean(tmp_path: Path) -> None:
    model = HPlus(write_tiny(tmp_path), units="ngrams-2")
    text = "heart 骨"
    states = model.states([text])
    assert not states.states[1].any()
    assert states.states[0].any()
    (vector,) = model.encode_document([text]).units.vectors
    np.testing.assert_allclose(
        vector, states.states[0] / np.linalg.norm(states.states[0]), atol=1e-6
    )


def test_texts_without_unknown_tokens_are_as_before(model: HPlus) -> None:
    """The mean over the text's own states and the special tokens, by hand."""
    ids = [*model.checkpoint.backbone.tokenizer.prefix]
    tokenizer = model.checkpoint.backbone.tokenizer
    ids = [*tokenizer.prefix, *tokenizer.tokens([KNOWN]).ids.tolist(), *tokenizer.suffix]
    rows = model.checkpoint.backbone.forward(np.array(ids, np.int32), np.array([0, len(ids)]))
    mean = rows.mean(axis=0)
    expected = mean / np.linalg.norm(mean)
    np.testing.assert_allclose(model.encode_query(KNOWN).global_[0], expected, atol=1e-6)


def test_the_share_is_counted(model: HPlus) -> None:
    count = model.count_unknown([KNOWN, UNKNOWN])
    assert (count.tokens, count.unknown, count.chinese) == (7, 4, True)
    assert model.count_unknown([""]).share == 0


def test_one_warning_names_the_model_to_take(model: HPlus) -> None:
    message = r"4 of 7 tokens of the documents \(57%\) are unknown .* take the model zh"
    with pytest.warns(UnknownTokensWarning, match=message):
        model.encode_document([KNOWN, UNKNOWN])
    with pytest.warns(UnknownTokensWarning, match="of the query"):
        model.encode_query(UNKNOWN)
    with pytest.warns(UnknownTokensWarning, match="take an encoder of the texts' language"):
        model.encode_query("ไทย")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.encode_query(KNOWN)
        model.encode_document([KNOWN] * 10 + ["骨"])  # one in 31


def test_a_search_for_unknown_things_is_refused(model: HPlus, tmp_path: Path) -> None:
    with Index.create(tmp_path / "x.hplus", model) as index:
        with pytest.warns(UnknownTokensWarning, match="of the documents"):
            report = index.add([{"id": "a", "text": KNOWN}, {"id": "b", "text": UNKNOWN}])
        assert (report.tokens, report.unknown) == (7, 4)
        with pytest.raises(InputError, match=r"4 of 4 tokens of the query \(100%\) are unknown"):
            index.search(UNKNOWN)
        assert index.search(KNOWN).hits[0].id == "a"
        assert index.search(f"{KNOWN} {UNKNOWN[:3]}").hits[0].id == "a"  # half of it: a warning


def test_the_command_line_says_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    from hplus.cli import main

    def run(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["hplus", *map(str, arguments)])
        with warnings.catch_warnings(action="default"), pytest.raises(SystemExit) as stopped:
            main()
        return (int(stopped.value.code or 0), *capfd.readouterr())

    folder = write_tiny(tmp_path / "tiny")
    rows = [{"_id": "a", "text": KNOWN}, {"_id": "b", "text": UNKNOWN}]
    source = tmp_path / "texts.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    code, out, err = run("index", source, tmp_path / "x.hplus", "--model", folder)
    assert code == 0
    assert "texts: 7 tokens read (57.1% unknown)" in out
    assert "warning: 4 of 7 tokens of the documents (57%) are unknown to the model tiny" in err
    code, _, err = run("search", tmp_path / "x.hplus", UNKNOWN)
    assert (code, err.count("\n")) == (2, 1)
    assert err.startswith("error: 4 of 4 tokens of the query (100%) are unknown to the model tiny")
