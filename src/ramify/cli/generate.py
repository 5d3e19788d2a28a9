"""`ramify generate`: sample text from a language model."""

from ramify.cli.verbs import Form

HELP = """Continue a text token by token, from left to right, and print the continuation.

Example: ramify generate runs/lm --prompt "The moon" --tokens 40 --top-p 0.9 --seed 1
"""

FORM = Form(HELP, lambda asked: [asked.answer.text])
