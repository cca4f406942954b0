"""`dlcheck measure`: run what a finding suggests against what is written, and say what came out."""
