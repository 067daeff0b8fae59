"""Qdrant: one collection with the three views of every document.

`points` says what is stored, `collection` keeps and changes it, `engine` searches it, `filters`
translates ours, `nodes` calls the server.
"""

from hplus.engines.qdrant.collection import create_store, exists, open_store

__all__ = ["create_store", "exists", "open_store"]
