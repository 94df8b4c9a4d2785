"""Data sets and Keras models to train on."""
