"""Federated tasks by name (`tasks.registry.load_task`): data sets, splits, client sampling, and Keras models."""
