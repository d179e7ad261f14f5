"""One module for each kind of measure; `registry` names them."""
