"""What readers of a table see, and when: a branch is audited, and main moved to it when everything holds."""
