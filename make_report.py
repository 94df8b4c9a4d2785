"""Makes one page of tables and pictures from folders of results, beside the paper's figures.

    python make_report.py out                                  # out/report/report.html, and its pictures as PNG
    python make_report.py out/paper --output=results/report --export=results

Folders are searched for runs (config.json and metrics.csv). The page needs no network and no other file. `--export`
writes a small form of the finished runs, text alone, which this command reads as well.
"""

from __future__ import annotations

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from absl import app

from experiments.report_command import main

if __name__ == "__main__":
    app.run(main)
