"""What is wrong across links, in an order that helps, and what to do."""
