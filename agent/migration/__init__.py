"""`migrate`: reads the definitions of two clusters, and makes at the target what it lacks. And the standby, which goes
on with that, and takes over.

It deletes no objects but its own scratch vhosts. At a source it changes nothing, but that a switchover moves messages.
"""
