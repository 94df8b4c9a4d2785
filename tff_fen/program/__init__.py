"""What runs a process for many rounds, as `tff.program` does: rounds, stores of states, serialization, sampling."""
