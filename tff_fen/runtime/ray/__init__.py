"""Client work on a Ray cluster."""
