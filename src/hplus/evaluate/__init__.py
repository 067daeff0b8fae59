"""Evaluation: data in BEIR layout and measures."""
