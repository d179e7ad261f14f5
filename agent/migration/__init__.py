"""`migrate`: reads the definitions of two clusters, makes at the target what it lacks, and moves the messages.

It deletes nothing but its own scratch vhosts, and writes nothing to the source.
"""
