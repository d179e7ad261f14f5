"""Other ways to move messages from queue to queue, each written as its own documentation advises."""
