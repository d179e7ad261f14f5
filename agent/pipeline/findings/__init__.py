"""What a report tells of the tables: few numbers whatever the data, asked of Spark once, for the page and programs."""
