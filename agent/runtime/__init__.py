"""Which links run, and the lifecycle of each; also what `plan` shows. Knows no kind of link but by the registry."""
