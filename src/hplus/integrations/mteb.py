"""A model for MTEB's retrieval tasks, by its `SearchProtocol`: it indexes and searches itself, as
systems with many vectors per document do.

    import mteb
    mteb.evaluate(HPlusSearch(HPlus()), mteb.get_task("SciFact"))
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from hplus.errors import MissingExtraError
from hplus.index import Index
from hplus.model import HPlus

try:
    from mteb.models.model_meta import ModelMeta, ScoringFunction
except ModuleNotFoundError:
    raise MissingExtraError("this needs mteb: pip install mteb") from None

# Three-letter codes and scripts, as MTEB names languages.
LANGUAGES = {"en": "eng-Latn", "zh": "zho-Hans"}


class HPlusSearch:
    """A model with the index it makes of a task's corpus, in a temporary folder.

    options: those of `Index.search` (view, alphas, budget, …); settings: those of `Index.create`.
    """

    def __init__(
        self, model: HPlus, *, options: dict[str, Any] | None = None, **settings: Any
    ) -> None:
        self.model, self.options, self.settings = model, options or {}, settings
        self._folder = tempfile.TemporaryDirectory(prefix="hplus-mteb-")
        self._index: Index | None = None

    def index(self, corpus: Any, **_: Any) -> None:
        """Index the corpus of a task; the one before is gone."""
        self.close()
        self._folder = tempfile.TemporaryDirectory(prefix="hplus-mteb-")
        self._index = Index.create(
            Path(self._folder.name) / "task.hplus", self.model, **self.settings
        )
        self._index.add(
            {"id": row["id"], "title": row.get("title") or "", "text": row["text"]}
            for row in corpus
        )

    def search(
        self,
        queries: Any,
        *,
        top_k: int,
        top_ranked: dict[str, list[str]] | None = None,
        **_: Any,
    ) -> dict[str, dict[str, float]]:
        """Query -> document -> score; of a reranking task, its own candidates."""
        if self._index is None:
            raise RuntimeError("MTEB searches before it has indexed")
        found: dict[str, dict[str, float]] = {}
        for row in queries:
            if top_ranked is None:
                hits = self._index.search(row["text"], k=top_k, **self.options)
            else:
                hits = self._index.rerank(row["text"], top_ranked[row["id"]], **self.options)
            found[row["id"]] = {hit.id: hit.score for hit in hits[:top_k]}
        return found

    def close(self) -> None:
        """Remove the index."""
        if self._index is not None:
            self._index.close()
            self._index = None
        self._folder.cleanup()

    @property
    def mteb_model_meta(self) -> ModelMeta:
        """What MTEB writes beside the results."""
        model = self.model
        return ModelMeta(
            loader=None,
            name=f"hplus/{model.recipe.name}",
            revision=model.fingerprint[:12],
            release_date=None,
            languages=[LANGUAGES[one] for one in model.languages if one in LANGUAGES] or None,
            n_parameters=None,
            memory_usage_mb=None,
            max_tokens=None,
            embed_dim=model.recipe.phrase_width or model.dim,
            license="apache-2.0",
            open_weights=True,
            public_training_code=None,
            public_training_data=None,
            framework=["ONNX"],
            similarity_fn_name=ScoringFunction.MAX_SIM,
            use_instructions=False,
            training_datasets=None,
            model_type=["late-interaction"],
        )
