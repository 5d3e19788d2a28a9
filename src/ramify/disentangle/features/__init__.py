"""Features of messages, of message pairs and of conversations."""
