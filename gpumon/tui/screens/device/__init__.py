"""One device over the whole screen."""
