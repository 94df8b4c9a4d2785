"""The same federated rounds by other people's code; `benchmarks.bench_peers` runs and compares them.

A module here is run by an environment of its own and imports nothing of this project but `workloads` and `protocol`.
"""
