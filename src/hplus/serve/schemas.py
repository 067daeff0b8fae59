"""What requests and answers look like: requests are checked by this, OpenAPI is made from it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from hplus.errors import InputError
from hplus.filters.syntax import LENGTH
from hplus.serve.limits import Limits
from hplus.types import Explanation, Search, View

LIMITS = Limits()
Text = Annotated[str, Field(max_length=LIMITS.text)]
Query = Annotated[str, Field(min_length=1, max_length=LIMITS.query)]
Id = Annotated[str, Field(min_length=1, max_length=512)]
Weight = Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1, le=1_000_000, strict=True)]
ViewName = Literal["global", "phrase", "lexical"]


class Strict(BaseModel):
    """A request: fields that nobody knows are mistakes."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True)


class Options(Strict):
    """How to search; `hplus.Search` says what each means."""

    view: View = "hybrid"
    k: Annotated[int, Field(ge=1, le=LIMITS.k, strict=True)] = 10
    from_: Annotated[int, Field(alias="from", ge=0, le=LIMITS.reach, strict=True)] = 0
    where: Annotated[
        str | None, Field(max_length=LENGTH, examples=['year >= 2020 and not tag = "x"'])
    ] = None
    budget: Count | None = None
    query_budget: Count | None = None
    width: Count | None = None
    alphas: Annotated[
        dict[ViewName, Weight] | None, Field(examples=[{"global": 0.5, "phrase": 1.0}])
    ] = None
    pool: Annotated[int, Field(ge=1, le=LIMITS.pool, strict=True)] = 1000
    exact: bool = False
    explain: bool = False
    min_score: Annotated[float | None, Field(allow_inf_nan=False)] = None
    group_by: Annotated[str | None, Field(max_length=1000)] = None
    readable: Annotated[
        bool,
        Field(
            description="Explanations for people instead of texts and raw figures: excerpts with "
            "marks, scores in thousandths that add up, the units of the query, and what an average "
            "document of the index scores."
        ),
    ] = False

    def options(self) -> dict[str, Any]:
        """The options of the library's `search`."""
        given = {name: getattr(self, name) for name in Options.model_fields if name != "readable"}
        return {**given, "explain": self.explain or self.readable}


class SearchRequest(Options):
    """One query, or several that share their options."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"query": "type 2 diabetes", "k": 3, "explain": True}]}
    )
    query: Query | None = None
    queries: Annotated[list[Query] | None, Field(min_length=1, max_length=LIMITS.texts)] = None

    @model_validator(mode="after")
    def _one_of_them(self) -> SearchRequest:
        if (self.query is None) == (self.queries is None):
            raise ValueError("give either query or queries")
        return self

    def searches(self) -> list[Search]:
        """A request of the library for each query."""
        queries = [self.query or ""] if self.queries is None else self.queries
        if not all(query.strip() for query in queries):
            raise InputError("the query is empty")
        options = self.options()
        return [Search(query, **options) for query in queries]


class RerankRequest(Options):
    """Documents of the index by their ids, to be ranked; k, from and where do not count."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"query": "type 2 diabetes", "ids": ["a", "b"]}]}
    )
    query: Query
    ids: Annotated[list[Id], Field(min_length=1, max_length=LIMITS.texts)]


class DocumentIn(Strict):
    """A document whose id is in the path."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"text": "Metformin treats type 2 diabetes.", "metadata": {"year": 2021}}]
        }
    )
    text: Text
    metadata: dict[str, Any] = {}


class DocumentsIn(Strict):
    """Several documents: objects with an id, a text, and fields of metadata, as in a .jsonl file.

    Without an id, the hash of its text is one.
    """

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"documents": [{"id": "a", "text": "Metformin.", "year": 2021}]}]
        }
    )
    documents: Annotated[list[dict[str, Any]], Field(min_length=1, max_length=10_000)]


class CompactRequest(Strict):
    """To a smaller budget or width, if they are given; nothing is encoded again."""

    budget: Count | None = None
    width: Count | None = None


class SegmentRequest(Strict):
    """Texts to divide into units; index: whose model to use, the first one's without it."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"texts": ["type 2 diabetes"], "side": "query"}]}
    )
    texts: Annotated[list[Text], Field(min_length=1, max_length=LIMITS.texts)]
    side: Literal["query", "document"] = "document"
    index: str | None = None


class TermsRequest(Strict):
    """Terms to try on texts."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"terms": ["heart failure"], "texts": ["acute heart failure therapy"]}]
        }
    )
    terms: Annotated[
        list[Annotated[str, Field(min_length=1, max_length=1000)]],
        Field(min_length=1, max_length=10_000),
    ]
    texts: Annotated[list[Text], Field(min_length=1, max_length=LIMITS.texts)]
    side: Literal["query", "document"] = "document"
    index: str | None = None


class Loose(BaseModel):
    """A request in the shape of another service; what it has beyond ours is ignored."""

    model_config = ConfigDict(extra="ignore", protected_namespaces=())


class EmbeddingsRequest(Loose):
    """As OpenAI's: the global view. input_type: which side of a search the texts are."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"input": "type 2 diabetes"}]})
    input: Text | Annotated[list[Text], Field(min_length=1, max_length=LIMITS.texts)]
    model: str | None = None
    dimensions: Annotated[int | None, Field(ge=1, le=1_000_000, strict=True)] = None
    encoding_format: Literal["float", "base64"] = "float"
    input_type: Literal["query", "document"] = "document"


class TextDocument(Loose):
    """A document as an object."""

    text: Text


class RerankTexts(Loose):
    """As Cohere's and Jina's. explanations: which phrases matched, for each result."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"query": "5 mg bisoprolol", "documents": ["bisoprolol 5 mg", "atenolol 50 mg"]}
            ]
        }
    )
    query: Query
    documents: Annotated[list[Text | TextDocument], Field(min_length=1, max_length=LIMITS.texts)]
    model: str | None = None
    top_n: Annotated[int | None, Field(ge=1, strict=True)] = None
    return_documents: bool | None = False
    explanations: bool = False


class Inputs(Loose):
    """As text-embeddings-inference's."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"inputs": ["type 2 diabetes"]}]})
    inputs: Text | Annotated[list[Text], Field(min_length=1, max_length=LIMITS.texts)]


def listed(texts: str | list[str]) -> list[str]:
    """One text or several."""
    return [texts] if isinstance(texts, str) else texts


# Answers: OpenAPI shows them, and the fuzz test holds the service to them.


class ErrorDetail(BaseModel):
    """What went wrong; caret: the character of the filter that it points to."""

    code: str
    message: str
    field: str | None = None
    caret: int | None = None
    details: dict[str, Any] | None = None


class ErrorOut(BaseModel):
    """Every error has this shape."""

    error: ErrorDetail


class HitOut(BaseModel):
    """A document found; `shown` instead of text and explanation in a readable answer."""

    id: str
    score: float
    views: dict[str, float]
    metadata: dict[str, Any]
    text: str | None = None
    passage: tuple[int, int] | None = None
    explanation: Explanation | None = None
    snippet: dict[str, Any] | None = None
    shown: dict[str, Any] | None = None


class ResultsOut(BaseModel):
    """The hits of one query."""

    query: str
    hits: list[HitOut]
    paths: dict[str, str]
    candidates: int
    hint: str | None = None
    units: list[dict[str, Any]] | None = None
    average: dict[str, Any] | None = None


class ManyResultsOut(BaseModel):
    """The hits of several queries, in their order."""

    results: list[ResultsOut]


class DocumentOut(BaseModel):
    """A document as the index has it."""

    id: str
    text: str
    metadata: dict[str, Any]


class ReportOut(BaseModel):
    """What became of documents; the change is confirmed."""

    added: int
    updated: int
    metadata_changed: int
    unchanged: int


class DeletedOut(BaseModel):
    """How many documents are gone."""

    deleted: int
