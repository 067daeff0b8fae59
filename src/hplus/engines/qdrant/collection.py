"""A Qdrant collection as hplus makes it, reads it and changes it.

The settings (model, fingerprint, widths, budget, fusion, terms) are in the collection's own
metadata, not in a point: they are then part of its configuration, which a cluster agrees upon, and
no count, search or scroll has to leave a point out.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict
from functools import partial
from typing import Any, Literal

import numpy as np
from qdrant_client import grpc
from qdrant_client.conversions.conversion import payload_to_grpc

from hplus.arguments import chosen, whole
from hplus.engines.address import Address
from hplus.engines.qdrant import filters
from hplus.engines.qdrant.engine import QdrantEngine
from hplus.engines.qdrant.nodes import Nodes
from hplus.engines.qdrant.points import (
    DOCUMENT,
    ENCODING,
    HELD,
    add_points,
    check_sizes,
    document,
    encoded_of,
    held,
    metadata,
    metadata_payload,
    payload,
    point_id,
)
from hplus.engines.store import Held, StoreStats, digest
from hplus.errors import FilterError, IndexDamagedError, InputError, ServiceError
from hplus.filters.ast import Filter, matches
from hplus.sources.document import Document
from hplus.storage.catalogue import Settings, dump, text_hash
from hplus.types import Encoded
from hplus.units.select import Budget

VERSION = 1
# Of a collection whose settings have a mean, which a pulled index rounds with.
WITH_MEAN = 2
# Points in one request: without vectors, with them, and bytes of vectors written at once.
MANY = 1_000
SOME = 128
WRITTEN = 8 << 20
# Documents that a filter which Qdrant cannot decide may have to name one by one, at most.
LISTED = 100_000
# How often points that a search has found are asked for.
ASKED = 5
# Seconds for which a count of all documents is good enough to choose a path by.
COUNTED = 10.0
Codes = Literal["none", "int8"]
DATATYPES = {"f32": grpc.Datatype.Float32, "f16": grpc.Datatype.Float16}


def open_store(address: Address) -> Collection:
    """A collection that hplus made."""
    with ExitStack() as stack:
        nodes = Nodes(address)
        stack.callback(nodes.close)
        version = nodes.version()
        collection = Collection(nodes, address, _read(nodes, address), version)
        problems = collection.problems()
        if problems:
            raise IndexDamagedError(
                f"{address} was changed since hplus made it: {problems[0]}; restore it, or push "
                "the documents to a new collection"
            )
        stack.pop_all()
    return collection


def exists(address: Address) -> bool:
    """Whether there is a collection of this name."""
    nodes = Nodes(address)
    try:
        return _exists(nodes, address)
    finally:
        nodes.close()


def create_store(
    address: Address,
    settings: Settings,
    terms: Sequence[str],
    *,
    stored: str = "f32",
    codes: Codes = "none",
    shards: int | None = None,
    replicas: int | None = None,
    on_disk: bool = False,
) -> Collection:
    """A new collection. stored: how vectors are kept, f32 or f16; codes: int8 lets the server scan
    8-bit codes of the unit vectors before it scores exactly; shards and replicas: of a cluster;
    on_disk: vectors are read from disk."""
    chosen("stored", stored, tuple(DATATYPES))
    chosen("codes", codes, ("none", "int8"))
    for name, value in (("shards", shards), ("replicas", replicas)):
        if value is not None:
            whole(name, value)
    note = {
        "version": VERSION if settings.mean is None else WITH_MEAN,
        "made": str(uuid.uuid4()),
        "settings": {**asdict(settings), "fusion": dict(settings.fusion)},
        "terms": list(terms),
        "stored": stored,
        "codes": codes,
    }
    common: dict[str, Any] = {
        "distance": grpc.Distance.Dot,
        "datatype": DATATYPES[stored],
        "on_disk": on_disk,
    }
    int8 = grpc.ScalarQuantization(type=grpc.QuantizationType.Int8, always_ram=True)
    units = grpc.VectorParams(
        size=settings.width,
        multivector_config=grpc.MultiVectorConfig(comparator=grpc.MultiVectorComparator.MaxSim),
        quantization_config=grpc.QuantizationConfig(scalar=int8) if codes == "int8" else None,
        **common,
    )
    vectors = {"global": grpc.VectorParams(size=settings.global_width, **common), "units": units}
    with ExitStack() as stack:
        nodes = Nodes(address)
        stack.callback(nodes.close)
        version = nodes.version()
        if _exists(nodes, address):
            raise InputError(f"{address} exists already; connect to it, or choose another name")
        request = grpc.CreateCollection(
            collection_name=address.name,
            vectors_config=grpc.VectorsConfig(params_map=grpc.VectorParamsMap(map=vectors)),
            sparse_vectors_config=grpc.SparseVectorConfig(
                map={"lexical": grpc.SparseVectorParams()}
            ),
            shard_number=shards,
            replication_factor=replicas,
            hnsw_config=grpc.HnswConfigDiff(m=0),  # no graph: see `engine`
            on_disk_payload=True,
            metadata=payload_to_grpc({"hplus": json.dumps(note)}),
        )
        try:
            nodes.collections("Create", request)
        except ServiceError:
            # A call that we gave up may have made it before it was repeated.
            if not _exists(nodes, address) or _read(nodes, address) != note:
                raise
        collection = Collection(nodes, address, note, version)
        try:
            collection.index_field("rough", grpc.FieldType.FieldTypeBool)
            collection.index_field("names", grpc.FieldType.FieldTypeKeyword)
        except BaseException:
            with suppress(ServiceError):
                collection.drop()  # without its indexes it would be half made
            raise
        stack.pop_all()
    return collection


class Collection:
    """Made by `open_store` or `create_store`."""

    def __init__(self, nodes: Nodes, address: Address, note: dict[str, Any], version: str) -> None:
        self.nodes, self.address, self.version = nodes, address, version
        self.name = address.name
        self._note = note
        rows = dict(note["settings"])
        self._settings = Settings(**{**rows, "budget": Budget(**rows["budget"])})
        self._counted = (-COUNTED, 0)
        self._copies: int | None = None

    @property
    def place(self) -> str:
        """Its address."""
        return str(self.address)

    @property
    def settings(self) -> Settings:
        """Widths, budget, fusion and model."""
        return self._settings

    @property
    def terms(self) -> list[str]:
        """The terminology that it was made with."""
        return list(self._note["terms"])

    @property
    def codes(self) -> str:
        """What the unit vectors are scanned by: "none" for the vectors themselves, or "int8"."""
        return str(self._note["codes"])

    def engine(self) -> QdrantEngine:
        """The collection as one search sees it."""
        return QdrantEngine(self)

    def close(self) -> None:
        """Close the connections."""
        self.nodes.close()

    # Counting and choosing

    def count(self, where: Filter | None = None) -> int:
        """How many documents there are, or pass a filter."""
        return self._count(None if where is None else self.passing(where))

    def _count(self, passing: Any) -> int:
        request = grpc.CountPoints(collection_name=self.name, exact=True, filter=passing)
        return int(self.nodes.points("Count", request).result.count)

    def approximate_count(self) -> int:
        """About how many documents there are, asked now and then."""
        now = time.monotonic()
        if now - self._counted[0] >= COUNTED:
            request = grpc.CountPoints(collection_name=self.name, exact=False)
            self._counted = now, int(self.nodes.points("Count", request).result.count)
        return self._counted[1]

    def passing(self, where: Filter) -> Any:
        """The conditions for exactly the documents that pass a filter: those about which Qdrant's
        own conditions say too little are decided here, and named one by one."""
        found = filters.compile(where)
        rough = filters.rough()
        unsure = rough if found.exact else filters.either(found.conditions, rough)
        passing: list[str] = []
        asked = 0
        for page in self._scroll(unsure, MANY, HELD):
            asked += len(page)
            for point in page:
                own = payload(point)
                if matches(where, own["id"], metadata(own)):
                    passing.append(point.id.uuid)
            if len(passing) > LISTED:
                raise FilterError(
                    "Qdrant cannot compare texts or ids by order, nor numbers that it rounds, and "
                    f"more than {LISTED:,} documents pass this filter, too many to name one by "
                    "one; compare a number instead, such as a year"
                )
        if not found.exact:
            return filters.with_ids(passing)
        if not asked:
            return found.conditions
        sure = filters.without(found.conditions, rough)
        return filters.either(sure, filters.with_ids(passing))

    def every_point(self, passing: Any) -> Iterator[str]:
        """The points that meet conditions."""
        for page in self._scroll(passing, MANY, ()):
            yield from (point.id.uuid for point in page)

    # Reading

    def held(self, ids: Sequence[str]) -> dict[str, Held]:
        """Those of these documents that are stored."""
        found = (payload(point) for point in self._get(map(point_id, ids), HELD))
        return {own["id"]: held(own) for own in found}

    def documents(self, ids: Sequence[str]) -> dict[str, Document]:
        """The same with their texts."""
        found = (payload(point) for point in self._get(map(point_id, ids), DOCUMENT))
        return {own["id"]: document(own) for own in found}

    def pages(self, size: int) -> Iterator[list[str]]:
        """The ids of all documents, some at a time, in the order of their points."""
        for page in self._scroll(None, size, ("id",)):
            yield [point.payload["id"].string_value for point in page]

    def read(self, ids: Sequence[str]) -> Encoded:
        """Stored encodings in this order."""
        return self.read_points([point_id(id_) for id_ in ids])

    def read_points(self, points: Sequence[str]) -> Encoded:
        """The same by points."""
        found = self.fetch(points, ENCODING, vectors=True)
        return encoded_of(found, self.settings.global_width, self.settings.width)

    def in_pages(self, points: Sequence[str]) -> Iterator[Encoded]:
        """The same, some at a time."""
        for first in range(0, len(points), SOME):
            yield self.read_points(points[first : first + SOME])

    def fetch(
        self, points: Sequence[str], fields: Sequence[str], *, vectors: bool = False
    ) -> list[Any]:
        """Points in this order, with these fields; one that is gone is an error.

        A node that was cut off lacks the latest points until it knows that it was; others have
        them.
        """
        for _ in range(ASKED):
            found = {point.id.uuid: point for point in self._get(points, fields, vectors=vectors)}
            if all(point in found for point in points):
                return [found[point] for point in points]
            self.nodes.ask_another()
        raise ServiceError(f"{self.place} was changed during the search; search again")

    def _get(
        self, points: Iterable[str], fields: Sequence[str], *, vectors: bool = False
    ) -> Iterator[Any]:
        every = list(points)
        step = SOME if vectors else MANY
        for first in range(0, len(every), step):
            ids = [grpc.PointId(uuid=point) for point in every[first : first + step]]
            request = grpc.GetPoints(
                collection_name=self.name,
                ids=ids,
                with_payload=_fields(fields),
                with_vectors=grpc.WithVectorsSelector(enable=vectors),
            )
            yield from self.nodes.points("Get", request).result

    def _scroll(self, passing: Any, size: int, fields: Sequence[str]) -> Iterator[Sequence[Any]]:
        offset = None
        while True:
            request = grpc.ScrollPoints(
                collection_name=self.name,
                filter=passing,
                limit=size,
                offset=offset,
                with_payload=_fields(fields),
                with_vectors=grpc.WithVectorsSelector(enable=False),
            )
            answer = self.nodes.points("Scroll", request)
            if answer.result:
                yield answer.result
            if not answer.HasField("next_page_offset"):
                return
            offset = answer.next_page_offset

    # Changing

    def write(self, documents: Sequence[Document], encoded: Encoded) -> None:
        """Put documents in, in place of those with their ids; confirmed when it returns."""
        check_sizes(documents, encoded)
        each = 4 * (np.diff(encoded.units.offsets) * encoded.units.width).astype(np.int64)
        cuts = np.flatnonzero(np.diff(np.cumsum(each) // WRITTEN)) + 1
        for rows in np.split(np.arange(len(documents)), cuts):
            some = [documents[i] for i in rows.tolist()]
            request = grpc.UpsertPoints(collection_name=self.name, wait=True)
            own = encoded.take(rows)
            add_points(request.points, some, own)
            self._confirm(partial(self.nodes.change, "Upsert", request), partial(_holds, some, own))

    def set_metadata(self, metadata: Mapping[str, dict[str, Any]]) -> None:
        """Other metadata of documents that exist; each document's at once."""
        for id_, own in metadata.items():
            self._confirm(partial(self._set_metadata, id_, own), partial(_holds_metadata, id_, own))

    def _set_metadata(self, id_: str, own: dict[str, Any]) -> list[Nodes]:
        ids = grpc.PointsIdsList(ids=[grpc.PointId(uuid=point_id(id_))])
        selected = grpc.PointsSelector(points=ids)
        new = metadata_payload(own)
        request = grpc.SetPayloadPoints(
            collection_name=self.name,
            wait=True,
            payload=payload_to_grpc(new),
            points_selector=selected,
        )
        others = self.nodes.change("SetPayload", request)
        if "exact" in new:
            return others
        gone = grpc.DeletePayloadPoints(
            collection_name=self.name, wait=True, keys=["exact"], points_selector=selected
        )
        return self.nodes.change("DeletePayload", gone)

    def delete(self, ids: Sequence[str]) -> int:
        """Delete these documents; returns how many there were."""
        there = list(self.held(ids))
        for first in range(0, len(there), MANY):
            some = there[first : first + MANY]
            points = [grpc.PointId(uuid=point_id(id_)) for id_ in some]
            self._delete(
                grpc.PointsSelector(points=grpc.PointsIdsList(ids=points)),
                partial(_lacks, some),
            )
        return len(there)

    def delete_where(self, where: Filter) -> int:
        """Delete the documents that pass a filter; returns how many there were."""
        passing = self.passing(where)
        count = self._count(passing)
        self._delete(grpc.PointsSelector(filter=passing), lambda other: not other._count(passing))
        return count

    def _delete(self, selected: Any, shown: Callable[[Collection], bool]) -> None:
        request = grpc.DeletePoints(collection_name=self.name, wait=True, points=selected)
        self._confirm(partial(self.nodes.change, "Delete", request), shown)

    def _confirm(
        self, change: Callable[[], list[Nodes]], shown: Callable[[Collection], bool]
    ) -> None:
        """Make a change; where documents have replicas, again until a second node shows it."""
        last = time.monotonic() + self.nodes.patience
        while True:
            others = change()
            if not others or self._replicas() == 1:
                return
            for nodes in others:
                with suppress(ServiceError):
                    if shown(Collection(nodes, self.address, self._note, self.version)):
                        return
            if time.monotonic() >= last:
                raise ServiceError(
                    f"{self.place}: a node took a change that no other node shows; check the "
                    "network between the nodes, then repeat the change"
                )
            self.nodes.ask_another()

    def _replicas(self) -> int:
        """Copies of each document, as the collection was made."""
        if self._copies is None:
            self._copies = int(self._info().config.params.replication_factor)
        return self._copies

    def index_field(self, name: str, kind: Any) -> None:
        """An index of the server over a field of the payload."""
        request = grpc.CreateFieldIndexCollection(
            collection_name=self.name, wait=True, field_name=name, field_type=kind
        )
        self.nodes.points("CreateFieldIndex", request)

    def drop(self) -> None:
        """Delete the collection and everything in it."""
        request = grpc.DeleteCollection(collection_name=self.name)
        self.nodes.collections("Delete", request)

    # Checking

    def stats(self) -> StoreStats:
        """What the server says of the collection."""
        found = self._info()
        params = found.config.params
        figures: dict[str, int | str] = {
            "points": int(found.points_count),
            "segments": int(found.segments_count),
            "shards": int(params.shard_number),
            "replicas": int(params.replication_factor),
            "stored": str(self._note["stored"]),
            "codes": self.codes,
            "status": grpc.CollectionStatus.Name(found.status),
        }
        return StoreStats(self.count(), self.version, figures)

    def problems(self) -> list[str]:
        """What is not as hplus made it, a sentence each."""
        params = self._info().config.params
        named = dict(params.vectors_config.params_map.map)
        found = []
        for name, width in (("global", self.settings.global_width), ("units", self.settings.width)):
            if name not in named:
                found.append(f"it has no vector {name!r}")
                continue
            if named[name].size != width:
                found.append(f"its vector {name!r} has size {named[name].size}, expected {width}")
            if named[name].distance != grpc.Distance.Dot:
                distance = grpc.Distance.Name(named[name].distance)
                found.append(f"its vector {name!r} has distance {distance}, expected Dot")
        if "units" in named and not named["units"].HasField("multivector_config"):
            found.append("its vector 'units' is not a multivector")
        if "lexical" not in params.sparse_vectors_config.map:
            found.append("it has no sparse vector 'lexical'")
        return found

    def _info(self) -> Any:
        request = grpc.GetCollectionInfoRequest(collection_name=self.name)
        return self.nodes.collections("Get", request).result


def _exists(nodes: Nodes, address: Address) -> bool:
    request = grpc.CollectionExistsRequest(collection_name=address.name)
    return bool(nodes.collections("CollectionExists", request).result.exists)


def _read(nodes: Nodes, address: Address) -> dict[str, Any]:
    """What hplus noted when it made the collection."""
    request = grpc.GetCollectionInfoRequest(collection_name=address.name)
    found = nodes.collections("Get", request).result.config.metadata
    if "hplus" not in found:
        raise InputError(
            f"{address} was not made by hplus, or its metadata were removed; push an index to a "
            f"new collection: hplus push INDEX {address}"
        )
    try:
        note = json.loads(found["hplus"].string_value)
        version = note["version"]
    except (ValueError, TypeError, KeyError):
        raise IndexDamagedError(f"{address} has damaged settings in its metadata") from None
    if version not in (VERSION, WITH_MEAN):
        raise InputError(
            f"{address} has format {version}, this hplus reads {VERSION} and "
            f"{WITH_MEAN}; update hplus"
        )
    own: dict[str, Any] = note
    return own


def _holds(documents: Sequence[Document], encoded: Encoded, there: Collection) -> bool:
    """Whether a collection has these documents, just so."""
    held = there.held([one.id for one in documents])
    return all(
        one.id in held and held[one.id].same(text_hash(one.text), one.metadata, digest(encoded, i))
        for i, one in enumerate(documents)
    )


def _lacks(ids: Sequence[str], there: Collection) -> bool:
    return not there.held(ids)


def _holds_metadata(id_: str, own: dict[str, Any], there: Collection) -> bool:
    held = there.held([id_])
    return id_ not in held or dump(held[id_].metadata) == dump(own)


def _fields(names: Sequence[str]) -> Any:
    if not names:
        return grpc.WithPayloadSelector(enable=False)
    return grpc.WithPayloadSelector(include=grpc.PayloadIncludeSelector(fields=list(names)))
