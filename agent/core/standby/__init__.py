"""A standby: a cluster that is kept in step with another one, its source, to take over from it."""
