"""The first screen: requested against used, what is wrong, and every device."""
