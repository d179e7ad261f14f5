"""Commands: read the arguments, call one function, print its result."""
