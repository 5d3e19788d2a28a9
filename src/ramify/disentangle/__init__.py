"""Disentanglement: reply links between the messages of a chat log, and the conversations that they form."""
