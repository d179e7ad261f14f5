"""Turns status exports into tables with Spark: functions of DataFrames, which only `job` runs."""
