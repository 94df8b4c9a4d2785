"""A picture of how a split deals the classes out to the clients."""

from __future__ import annotations

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.backend_bases import FigureCanvasBase

from experiments.axes import whole_numbers

FORMATS = FigureCanvasBase.get_supported_filetypes()
"""Endings of names of pictures, and what they are."""


def draw(counts: np.ndarray, title: str) -> plt.Figure:
    """Returns a picture of clients by classes: shares of each client's data as shades, and the clients' sizes."""
    sizes = counts.sum(1)
    shares = counts / np.maximum(sizes, 1)[:, None]
    figure, (top, bottom) = plt.subplots(2, 1, figsize=(10, 6), height_ratios=(1, 3), sharex=True, layout="constrained")
    top.bar(np.arange(len(sizes)), sizes, width=1.0, color="0.4")
    top.set_ylabel("examples")
    top.set_title(title)
    image = bottom.imshow(shares.T, aspect="auto", origin="lower", cmap="viridis", interpolation="nearest", vmin=0.0)
    bottom.set_xlabel("client")
    whole_numbers(bottom)
    bottom.set_ylabel("class")
    if counts.shape[1] <= 26:
        bottom.set_yticks(np.arange(counts.shape[1]))
    figure.colorbar(image, ax=bottom, label="share of the client's examples")
    return figure
