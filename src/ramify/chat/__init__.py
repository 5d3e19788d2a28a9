"""What a chat log says about who answers whom before any model is asked: names, words, and features of pairs of messages."""
