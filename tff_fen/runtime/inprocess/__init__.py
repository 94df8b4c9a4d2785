"""Evaluates TFF computations in this process, with the installed TensorFlow and clients side by side in threads."""
