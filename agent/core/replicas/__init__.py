"""How agents of one group share links: slots, fair shares, and what replicas say to each other."""
