"""The sources of definitions: the configuration, exports, the broker's parameters, 2.x files; and their merging."""
