"""Which of several running processes of one pipeline works on its tables: elections, and the link between processes."""
