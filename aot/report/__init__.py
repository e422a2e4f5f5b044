"""report: a bundle as one HTML page; see `report.py`."""
