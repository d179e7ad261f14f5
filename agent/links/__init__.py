"""What runs a link of any kind; a folder for each kind. Kinds don't know each other."""
