"""Filters on metadata: a tree, the language it is written in, and its translation to SQL."""
