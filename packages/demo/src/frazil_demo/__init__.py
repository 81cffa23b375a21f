"""`frazil demo`: a broker, producers, the pipeline and a live view on one machine, all of them real."""
