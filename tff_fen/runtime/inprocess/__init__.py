"""Evaluates TFF computations in this process."""
