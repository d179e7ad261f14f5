"""The links that run, and the lifecycle of each; also the inputs of `plan`. Knows no kind of link but by the
registry."""
