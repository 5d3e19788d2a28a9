"""Views: which examples a corpus yields, and what each target may read."""
