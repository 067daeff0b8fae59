"""Teaching: labels for the heads, made from spans, terms, rules and a chunker."""
