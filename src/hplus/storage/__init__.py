"""What is below an index: one catalogue, segments of plain arrays, one writer at a time."""
