"""MongoDB documents in Debezium's envelopes, and their ids in record keys."""
