"""Papers reproduced, one file per table or figure: `registry` finds them, `runner` runs them."""
