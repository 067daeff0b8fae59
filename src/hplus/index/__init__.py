"""The index on disk: catalogue, segments, writer and readers."""
