"""All cases of kernels' sources: importing this fills `source_table.CASES`."""

import source_cases_calls
import source_cases_products
import source_cases_rows

__all__ = ["source_cases_calls", "source_cases_products", "source_cases_rows"]
