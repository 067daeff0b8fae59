"""The three views: each represents, scores and explains."""
