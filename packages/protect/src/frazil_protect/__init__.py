"""Personal data that is hashed, masked or dropped before anything is written."""
