"""Rewrites of TensorFlow graphs for speed, one per file."""
