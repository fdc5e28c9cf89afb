"""Enhanced fan-out with SubscribeToShard."""
