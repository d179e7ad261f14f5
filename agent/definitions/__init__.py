"""What operators write, turned into the core's model; every mistake keeps its place (file, line, column)."""
