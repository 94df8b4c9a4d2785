"""Evaluates TFF computations with the clients' work on a Ray cluster; the rest is done in this process."""
