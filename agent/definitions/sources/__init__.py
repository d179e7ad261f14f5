"""Where definitions come from: the configuration, exports, the broker's parameters, 2.x files; and how they merge."""
