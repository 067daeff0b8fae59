"""After any sequence of changes an index answers like a new one of the remaining documents.

Bit for bit, in every view and format; after a compaction to fewer units or columns, which rounds
once more, within that rounding. Segments are merged by threes here and not by eights, in
chunks of two, and all get lists, so that a few steps reach everything.
"""

from __future__ import annotations

import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from brute_force import ALPHAS, QuickDisk
from builders import random_encoded, text_of_words
from faulty import living
from hplus import texts as steps
from hplus.errors import IndexDamagedError, InputError
from hplus.index import Index
from hplus.search.searcher import Results
from hplus.storage import compact, lists, merge, segment, sketches
from hplus.storage.segment import FORMATS, Format
from hplus.types import Encoded, View, concatenate
from hplus.units.select import Budget
from hplus.views.lexical import Spelling

SMALL = {
    compact: {"TIER": 3},
    segment: {"CHUNK": 2, "LEXICAL_CHUNK": 4},
    merge: {"BLOCK": 3},
    steps: {"STEP_TEXTS": 2},
    lists: {"LISTED_DOCUMENTS": 3},
    sketches: {"SKETCHED": 4},
}
WIDTH = 6
WORDS = text_of_words(40)
IDS = st.sampled_from([f"d{i}" for i in range(12)])
SEEDS = st.integers(0, 40)  # few, so that some documents are equal
METADATA = st.fixed_dictionaries({"n": st.integers(0, 3)})
DOCUMENTS = st.dictionaries(IDS, st.tuples(SEEDS, METADATA), min_size=1, max_size=4)
# What a second rounding may move a score by; f32 has none but that of float32.
LEEWAY = {"f32": 1e-5, "f16": 2e-3, "int8": 0.05, "int4": 0.9}


def text(seed: int) -> str:
    return f"{WORDS} {seed}"


def encode(texts: list[str]) -> Encoded:
    """What a text is encoded as depends on the number at its end, and on nothing else."""
    parts = []
    for one in texts:
        random = np.random.default_rng(int(one.rsplit(" ", 1)[1]))
        kept, lost = random.integers(0, 6), random.integers(0, 3)
        parts.append(random_encoded(random, [kept], WIDTH, dropped=[lost]))
    return concatenate(parts)


class FakeModel:
    """As much of a model as an index needs to take texts."""

    fingerprint = "fake"
    spelling = Spelling()
    recipe = SimpleNamespace(name="fake")
    tokenizer = SimpleNamespace(token=str, unknown=None)
    checkpoint = SimpleNamespace(backbone=SimpleNamespace(tokenizer=tokenizer))

    def __init__(self) -> None:
        self.encoded: list[str] = []

    def encode_step(
        self, texts: list[str], budget: Budget, width: int, advance: Callable[[int], None]
    ) -> Encoded:
        self.encoded += texts
        advance(len(texts))
        return encode(texts or [text(0)])[: len(texts)].at(budget=budget, width=width)


Documents = dict[str, tuple[int, dict[str, Any]]]


class Changes(RuleBasedStateMachine):
    """`documents` is what the index should hold, `seen` what the second reader should."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.patch = pytest.MonkeyPatch()
        for module, values in SMALL.items():
            for name, value in values.items():
                self.patch.setattr(module, name, value)
        self.model = FakeModel()
        self.documents: Documents = {}
        self.numbers: dict[str, int] = {}
        self.last_number = 0
        self.rounded = False
        self.made = 0
        self.options: dict[str, Any] = {}
        self.copies = 0

    def create(self) -> Index:
        self.made += 1
        return Index.create(
            self.folder / str(self.made),
            global_width=WIDTH,
            fingerprint="fake",
            fusion=ALPHAS,
            disk=QuickDisk(),
            **self.options,
        )

    def open(self) -> Index:
        return Index.open(self.path, model=self.model, disk=QuickDisk())  # type: ignore[arg-type]

    @initialize(format=st.sampled_from(FORMATS))
    def begin(self, format: Format) -> None:
        self.options = {"format": format, "width": WIDTH, "budget": Budget()}
        with self.create() as made:
            self.path = made.path
        self.index, self.reader = self.open(), self.open()
        self.seen: Documents = {}
        self.seen_options, self.seen_rounded = dict(self.options), False
        self.back_up()

    @rule(some=DOCUMENTS)
    def add_encoded(self, some: Documents) -> None:
        new = {id_: value for id_, value in some.items() if id_ not in self.documents}
        if not new:
            return
        texts = [text(seed) for seed, _ in new.values()]
        report = self.index.add_encoded(
            list(new), encode(texts), texts=texts, metadata=[data for _, data in new.values()]
        )
        assert report.added == len(new)
        self.documents |= new

    @rule(some=DOCUMENTS)
    def add(self, some: Documents) -> None:
        """New documents, and known ones unchanged."""
        wanted = {id_: self.documents.get(id_, value) for id_, value in some.items()}
        self.put(wanted, update=False)

    @rule(some=DOCUMENTS)
    def update(self, some: Documents) -> None:
        self.put(some, update=True)

    def put(self, wanted: Documents, *, update: bool) -> None:
        fresh = [
            text(seed)
            for id_, (seed, _) in wanted.items()
            if self.documents.get(id_, (None,))[0] != seed
        ]
        rows = [{"id": id_, "text": text(seed), **data} for id_, (seed, data) in wanted.items()]
        self.model.encoded.clear()
        report = (self.index.update if update else self.index.add)(rows)
        assert self.model.encoded == fresh
        added = [id_ for id_ in wanted if id_ not in self.documents]
        assert report.added == len(added)
        assert report.updated == len(fresh) - len(added)
        assert report.unchanged + report.metadata_changed == len(wanted) - len(fresh)
        same = [id_ for id_, value in wanted.items() if self.documents.get(id_) == value]
        assert report.unchanged == len(same)
        self.documents |= wanted

    @rule(some=DOCUMENTS)
    def sync(self, some: Documents) -> None:
        """What the source does not have is gone."""
        before = set(self.documents)
        rows = [{"id": id_, "text": text(seed), **data} for id_, (seed, data) in some.items()]
        report = self.index.update(rows, sync=True)
        assert report.deleted == report.absent == len(before - set(some))
        self.documents = dict(some)

    @rule(some=DOCUMENTS, after=st.integers(0, 4))
    def interrupt(self, some: Documents, after: int) -> None:
        """Complete steps of two documents are kept, and none of the one under way."""

        def source() -> Iterator[dict[str, Any]]:
            for i, (id_, (seed, data)) in enumerate(some.items()):
                if i == after:
                    raise KeyboardInterrupt
                yield {"id": id_, "text": text(seed), **data}
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            self.index.update(source())
        kept = min(after, len(some)) // 2 * 2
        self.documents |= dict(list(some.items())[:kept])

    @rule(some=DOCUMENTS)
    def fail_after_the_commit(self, some: Documents) -> None:
        """Out of memory in tidying: the documents are there, and the call has not failed."""

        def fail(*_: Any) -> None:
            raise MemoryError

        with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            patch.setattr(compact, "put_together", fail)
            self.put(some, update=True)
        assert all("the change is confirmed, but tidying" in str(one.message) for one in said)

    @rule(some=DOCUMENTS, place=st.integers(0, 100))
    def add_what_is_malformed(self, some: Documents, place: int) -> None:
        """Refused as a whole, before anything of it is there."""
        new = {id_: value for id_, value in some.items() if id_ not in self.documents}
        if not new:
            return
        encoded = encode([text(seed) for seed, _ in new.values()])
        broken = encoded.global_.copy()
        broken[place % len(broken), place % WIDTH] = np.nan
        with pytest.raises(InputError):
            self.index.add_encoded(list(new), replace(encoded, global_=broken))

    @rule(kept=st.floats(0, 1))
    def damage_the_log(self, kept: float) -> None:
        """A copy of which the log is lost or cut short is complete, or refused."""
        self.copies += 1
        copy = self.folder / f"damaged {self.copies}"
        shutil.copytree(self.path, copy)
        self.copies -= 1  # the last backup is still the last
        log = copy / "catalogue.sqlite-wal"
        data = log.read_bytes() if log.exists() else b""
        for name in (log, copy / "catalogue.sqlite-shm"):
            name.unlink(missing_ok=True)
        if kept > 0.5:
            log.write_bytes(data[: int(kept * len(data))])
        try:
            with Index.open(copy, disk=QuickDisk()) as index:
                found = {row.id: row.metadata for row in living(index.engine.snapshot)}
        except IndexDamagedError as error:
            right = "was confirmed: its write-ahead log" in str(error) and data
        else:
            right = found == {id_: data for id_, (_, data) in self.documents.items()}
        assert right
        shutil.rmtree(copy)

    @rule(ids=st.lists(IDS, max_size=4))
    def delete(self, ids: list[str]) -> None:
        assert self.index.delete(ids) == len(set(ids) & set(self.documents))
        self.documents = {i: value for i, value in self.documents.items() if i not in ids}

    @rule()
    def compact(self) -> None:
        self.index.compact()
        assert len(self.index.engine.snapshot.parts) <= 1
        assert self.index.stats().deleted == 0

    @precondition(lambda self: len(self.documents) > 3 and not self.rounded)
    @rule(budget=st.integers(1, 5), width=st.integers(2, WIDTH))
    def compact_to_less(self, budget: int, width: int) -> None:
        self.index.compact(budget=budget, width=width)
        self.options |= {"budget": Budget(budget), "width": width}
        self.rounded = True

    @rule()
    def reopen(self) -> None:
        self.index.close()
        self.index = self.open()

    @rule()
    def back_up(self) -> None:
        """The folder as it is, with the log, while readers are open."""
        self.copies += 1
        shutil.copytree(self.path, self.folder / f"backup {self.copies}")
        known = dict(self.documents), dict(self.numbers), self.last_number
        self.backup = (*known, dict(self.options), self.rounded)

    @rule()
    def restore(self) -> None:
        """Segments may have the numbers and sizes of those that were there, but other documents."""
        self.made += 1
        self.path.rename(self.folder / f"gone {self.made}")
        shutil.copytree(self.folder / f"backup {self.copies}", self.path)
        documents, numbers, self.last_number, options, self.rounded = self.backup
        self.documents, self.numbers, self.options = dict(documents), dict(numbers), dict(options)
        self.index.refresh()

    @rule()
    def refresh(self) -> None:
        self.reader.refresh()
        self.seen, self.seen_rounded = dict(self.documents), self.rounded
        self.seen_options = dict(self.options)

    @invariant()
    def size_and_ids(self) -> None:
        if not self.options:
            return
        for index, documents in ((self.index, self.documents), (self.reader, self.seen)):
            assert len(index) == len(documents)
            assert {f"d{i}" for i in range(12) if f"d{i}" in index} == set(documents)

    @invariant()
    def numbers_never_move(self) -> None:
        if not self.options:
            return
        rows = living(self.index.engine.snapshot)
        for row in rows:
            seed, metadata = self.documents[row.id]
            assert (row.text, row.metadata) == (text(seed), metadata)
            # Another number is a new document, and no number is used twice.
            assert self.numbers.get(row.id) == row.number or row.number > self.last_number
        self.numbers = {row.id: row.number for row in rows}
        self.last_number = max([self.last_number, *self.numbers.values()])

    @rule(seed=st.integers(100, 10_000), where=st.sampled_from([None, "n > 1", "n = 7"]))
    def search(self, seed: int, where: str | None) -> None:
        self.compare(self.index, self.documents, self.rounded, self.options, seed, where)

    @rule(seed=st.integers(100, 10_000))
    def search_another_generation(self, seed: int) -> None:
        self.compare(self.reader, self.seen, self.seen_rounded, self.seen_options, seed, None)

    def compare(
        self,
        index: Index,
        documents: Documents,
        rounded: bool,
        options: dict[str, Any],
        seed: int,
        where: str | None,
    ) -> None:
        query = random_encoded(np.random.default_rng(seed), [seed % 5], WIDTH)
        now, self.options = self.options, options
        with self.create() as fresh:
            self.options = now
            ids = sorted(documents)
            if ids:
                texts = [text(documents[i][0]) for i in ids]
                metadata = [documents[i][1] for i in ids]
                fresh.add_encoded(ids, encode(texts), texts=texts, metadata=metadata)
            for view in get_args(View):
                for k in (2, 20):
                    found, expected = (
                        one.search(query, view=view, k=k, where=where, explain=True)
                        for one in (index, fresh)
                    )
                    if not rounded:
                        assert found.hits == expected.hits
                    else:
                        assert_close(found, expected, LEEWAY[options["format"]])
            if ids and not rounded:
                some = ids[:: 2 if seed % 2 else 1]
                assert index.rerank(query, some).hits == fresh.rerank(query, some).hits

    def teardown(self) -> None:
        try:
            if self.options:
                self.compare(self.index, self.documents, self.rounded, self.options, 101, None)
                verified = self.index.verify()
                assert verified.problems == []
                assert verified.documents == len(self.documents)
                self.index.close()
                self.reader.close()
        finally:
            self.patch.undo()
            shutil.rmtree(self.folder)


def assert_close(found: Results, expected: Results, leeway: float) -> None:
    """Scores place by place, and of every document that both found."""
    assert len(found) == len(expected)
    scores = {hit.id: hit.score for hit in expected}
    for hit, other in zip(found, expected, strict=True):
        assert hit.score == pytest.approx(other.score, abs=leeway)
        assert hit.score == pytest.approx(scores.get(hit.id, hit.score), abs=leeway)


TestChanges = Changes.TestCase
TestChanges.settings = settings(deadline=None, max_examples=20, stateful_step_count=20)
