"""Records of a topic read as changes of rows, each with its key."""
