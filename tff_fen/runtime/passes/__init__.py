"""Rewrites of TensorFlow graphs, one per file; `stages` says which run when, and in which order."""
