"""One page of tables and pictures from folders of results; `make_report.py` is its command."""
