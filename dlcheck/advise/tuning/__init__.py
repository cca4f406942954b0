"""`dlcheck tune`: loader options tried on the user's own loader, and the cheapest of the best proven."""
