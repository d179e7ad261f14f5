"""The status export of a fleet → tables, by Spark: functions of DataFrames, which `job` alone runs."""
