"""Status events as files: one JSON object per line, complete files only, and never at the expense of messages."""
