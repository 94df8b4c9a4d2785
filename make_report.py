"""Makes one page of tables and pictures from folders of results.

  python make_report.py out                out/report/report.html, and pictures
  python make_report.py out/paper --output=results/report --export=results

Folders are searched for runs (config.json and metrics.csv). The page needs no
network and no other file. --export writes a small form of the finished runs,
text alone, which this command reads as well.
"""

from __future__ import annotations

import experiments.environment  # noqa: F401  first: it says what to do where there is no TensorFlow
from experiments import command_line
from experiments.report_command import main

if __name__ == "__main__":
    command_line.run(main, __doc__)
