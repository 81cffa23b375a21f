"""Further envelopes: messages of Canal and Maxwell, records of AWS DMS, CloudEvents and events of outboxes."""
