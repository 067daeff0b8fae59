"""Endpoints in the shapes of other services, so that their clients work here unchanged.

POST /v1/embeddings             OpenAI: the global view; `dimensions` is its prefix width
POST /v1/rerank, /v2/rerank     Cohere, Jina: the fused score
POST /embed_sparse, /embed_all  text-embeddings-inference: the lexical view; the phrase view,
                                one vector for each unit, heaviest first
"""

from __future__ import annotations

import base64
import uuid
from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from fastapi import APIRouter, Response

from hplus.errors import BudgetError
from hplus.recipe import Side
from hplus.serve import schemas
from hplus.serve.answers import as_response
from hplus.serve.native import ERRORS
from hplus.serve.problems import RefusedError
from hplus.serve.served import Served
from hplus.texts import in_steps
from hplus.types import Encoded, concatenate
from hplus.units.vectors import normalise
from hplus.views import fusion


def routes(indexes: Mapping[str, Served]) -> APIRouter:
    """The endpoints; `model` names an index or its model, and is the first one's if left out."""
    router = APIRouter(tags=["drop-in"], responses=ERRORS)

    def of(model: str | None) -> Served:
        for served in indexes.values():
            if model in (None, served.name, served.model.name):
                return served
        names = dict.fromkeys(
            name for served in indexes.values() for name in (served.model.name, served.name)
        )
        raise RefusedError(
            404,
            "missing_model",
            f"no model {model!r:.100} is served; there are {', '.join(names)}",
            field="model",
        )

    @router.post("/v1/embeddings")
    async def embeddings(request: schemas.EmbeddingsRequest) -> Response:
        """The global view of texts, in OpenAI's shape."""
        served = of(request.model)
        encoded = await _encode(served, schemas.listed(request.input), request.input_type)
        vectors = encoded.global_
        if request.dimensions is not None:
            if request.dimensions > vectors.shape[1]:
                raise BudgetError(
                    f"{request.dimensions} dimensions requested, but the model gives "
                    f"{vectors.shape[1]}"
                )
            vectors = normalise(vectors[:, : request.dimensions])
        tokens = int(encoded.coverage.tokens.sum())
        return as_response(
            {
                "object": "list",
                "data": [
                    {
                        "object": "embedding",
                        "index": i,
                        "embedding": _base64(vector)
                        if request.encoding_format == "base64"
                        else vector.tolist(),
                    }
                    for i, vector in enumerate(vectors)
                ],
                "model": served.model.name,
                "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
            }
        )

    @router.post("/v1/rerank")
    @router.post("/v2/rerank", include_in_schema=False)
    async def rerank(request: schemas.RerankTexts) -> Response:
        """Texts ranked for a query, in Cohere's and Jina's shape.

        relevance_score: the mean of the views, weighted as the index weighs them; at most about 1,
        and comparable within one answer.
        """
        served = of(request.model)
        texts = [one if isinstance(one, str) else one.text for one in request.documents]
        query = await served.read(partial(served.index.encode, request.query))
        documents = await _encode(served, texts, "document")
        alphas = served.index.settings.fusion
        scores = await served.read(
            partial(
                fusion.score,
                query,
                documents,
                alphas,
                query_text=request.query,
                document_texts=texts if request.explanations else None,
                spelling=served.model.spelling,
            )
        )
        whole = sum(alphas.values()) or 1.0
        results = []
        for i in scores.ranking()[: request.top_n].tolist():
            row: dict[str, Any] = {"index": i, "relevance_score": float(scores.fused[i]) / whole}
            if request.return_documents:
                row["document"] = {"text": texts[i]}
            if scores.explanations is not None:
                row["explanation"] = asdict(scores.explanations[i])
            results.append(row)
        tokens = int(documents.coverage.tokens.sum() + query.coverage.tokens.sum())
        return as_response(
            {
                "id": str(uuid.uuid4()),
                "model": served.model.name,
                "results": results,
                "usage": {"total_tokens": tokens},
                "meta": {"api_version": {"version": "2"}, "billed_units": {"search_units": 1}},
            }
        )

    @router.post("/embed_sparse")
    async def embed_sparse(request: schemas.Inputs) -> Response:
        """The lexical view: for each text its token ids and their importance."""
        view = (await _encode(of(None), schemas.listed(request.inputs), "document")).lexical
        ids, weights = view.ids.tolist(), view.weights.tolist()
        return as_response(
            [
                [{"index": ids[i], "value": weights[i]} for i in range(first, last)]
                for first, last in pairwise(view.offsets.tolist())
            ]
        )

    @router.post("/embed_all")
    async def embed_all(request: schemas.Inputs) -> Response:
        """The phrase view: for each text the vectors of its units, heaviest first."""
        units = (await _encode(of(None), schemas.listed(request.inputs), "document")).units
        vectors = units.vectors.tolist()
        return as_response(
            [vectors[first:last] for first, last in pairwise(units.offsets.tolist())]
        )

    return router


async def _encode(served: Served, texts: list[str], side: Side) -> Encoded:
    """Texts in the three views, step by step: who goes away in between ends it."""
    model, parts = served.model, []
    for step in in_steps(texts):
        encode = model.encode_query if side == "query" else model.encode_document
        parts.append(await served.read(partial(encode, step)))
    return concatenate(parts)


def _base64(vector: Any) -> str:
    return base64.b64encode(np.asarray(vector, "<f4").tobytes()).decode()
