"""Records that wrap a change of their source: opened to one form, and made changes of the table."""
