"""Losses: pure functions with the paper's symbols, one per file."""
