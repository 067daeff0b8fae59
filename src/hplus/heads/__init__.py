"""Heads: what is read off the token states."""
