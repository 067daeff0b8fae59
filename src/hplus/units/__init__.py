"""Units: from tokens to the pieces that are matched."""
