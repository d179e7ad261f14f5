"""`migrate`: reads the definitions of two clusters, makes at the target what it lacks, and moves the messages. And the
standby, which goes on with copying, and takes over.

It deletes no objects but its own scratch vhosts. At a source it changes nothing, but that a switchover moves messages.
"""
