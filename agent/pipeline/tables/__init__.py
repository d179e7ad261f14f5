"""The report's tables, each a function of DataFrames."""
