"""Status events as files: one JSON object a line, whole files only, and never at the expense of messages."""
