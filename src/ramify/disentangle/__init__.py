"""Who replied to whom in a chat log, and which conversations it holds."""
