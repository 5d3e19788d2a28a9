"""The objective of nested documents (AGENT, section 3): one file per loss, and the task that adds them up."""
