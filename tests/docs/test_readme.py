"""The README's library example runs as it stands."""

from __future__ import annotations

import pathlib
import re

README = pathlib.Path(__file__).parents[2] / "README.md"


def test_the_example_runs() -> None:
    (example,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    losses = []
    exec(compile(example, str(README), "exec"), {"print": lambda t, loss, accuracy: losses.append(float(loss))})
    assert len(losses) == 10 and losses[-1] < losses[0] / 2
