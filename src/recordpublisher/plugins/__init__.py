"""Floor 3: names, adapters, start button."""
