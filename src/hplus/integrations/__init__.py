"""Where people already are: thin adapters, each of which needs the package that it adapts to."""
