"""Figures for Prometheus: requests by endpoint and status, times, batches, documents."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST as CONTENT_TYPE

__all__ = ["CONTENT_TYPE", "Metrics"]

SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30)


class Sized(Protocol):
    """What is counted of an index."""

    @property
    def generation(self) -> int: ...

    def __len__(self) -> int: ...


class Metrics:
    """The figures of one application; they are not shared with others in the process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "hplus_requests",
            "Requests answered.",
            ["method", "endpoint", "status"],
            registry=self.registry,
        )
        self.seconds = Histogram(
            "hplus_request_seconds",
            "From the headers of a request to the end of its answer.",
            ["endpoint"],
            buckets=SECONDS,
            registry=self.registry,
        )
        self.at_work = Gauge("hplus_requests_at_work", "At this moment.", registry=self.registry)
        self.batch = Histogram(
            "hplus_query_batch",
            "Queries encoded in one pass.",
            buckets=(1, 2, 4, 8, 16, 32),
            registry=self.registry,
        )
        self.documents = Gauge(
            "hplus_documents", "Documents of an index.", ["index"], registry=self.registry
        )
        self.generation = Gauge(
            "hplus_generation", "Confirmed changes of an index.", ["index"], registry=self.registry
        )

    def text(self, indexes: Mapping[str, Sized]) -> bytes:
        """Everything in the format that Prometheus reads."""
        for name, index in indexes.items():
            self.documents.labels(name).set(len(index))
            self.generation.labels(name).set(index.generation)
        return generate_latest(self.registry)
