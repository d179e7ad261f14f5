"""`report.html`: findings → one file that needs no network and no script. Pure functions; nothing here asks Spark."""
