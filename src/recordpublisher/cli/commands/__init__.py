"""Commands that need no stream: the embedded endpoint, the demo, what there is to set and to plug in."""
