"""`migrate`: reads the definitions of two clusters, and makes at the target what it lacks.

It deletes nothing but its own scratch vhosts, and writes nothing to the source.
"""
