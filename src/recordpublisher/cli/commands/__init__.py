"""Commands that need no stream: the embedded endpoint, the demo, the properties, and the plugins."""
