"""Search: rankings of whole corpora."""
