"""`calve prove`: a throw-away deployment in an account, and the checks of all that it does there."""
