"""The results of a report: a bounded set of numbers from the tables, queried from Spark once, for the page and
programs."""
