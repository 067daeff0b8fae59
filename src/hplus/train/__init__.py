"""Training: heads on frozen states."""
