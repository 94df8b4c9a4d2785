"""Long experiments: what is kept on disk so that they can be resumed exactly."""
