"""Runs links of any kind, with a folder for each kind. Kinds don't know each other."""
