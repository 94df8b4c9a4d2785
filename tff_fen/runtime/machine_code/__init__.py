"""Marked arithmetic as machine code, and as operations of TensorFlow."""
