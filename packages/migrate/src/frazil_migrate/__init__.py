"""Migration from other tools: their configurations made into pipeline files, their tables taken over and handed back."""
