"""Training: heads on frozen states, and encoders with their heads in two stages."""
