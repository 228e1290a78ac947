"""Files of jets: `lists` finds them, `tables` opens, reads and writes them."""
